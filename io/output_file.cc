// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;

constexpr int kNoFile = -1;
constexpr absl::string_view kTemporaryPrefix = ".voxconv-";

absl::Status SystemError(const std::string& path, absl::string_view what, int error) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return error == EACCES || error == EPERM ? absl::PermissionDeniedError(message)
                                           : absl::UnavailableError(message);
}

absl::Status CannotWrite(const std::string& path, int error) {
  return SystemError(path, "cannot be written", error);
}

class Descriptor {
 public:
  explicit Descriptor(int file = kNoFile) : file_(file) {}
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, kNoFile)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Descriptor() {
    if (file_ != kNoFile) close(file_);
  }
  int get() const { return file_; }

 private:
  int file_;
};

// The path with the links of its last part followed, also of one that names no file yet.
absl::StatusOr<fs::path> FollowLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  fs::path at = path;
  std::error_code error;
  for (int i = 0; i <= kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    const fs::path to = fs::read_symlink(at, error);
    if (error) return CannotWrite(path, error.value());
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return CannotWrite(path, ELOOP);
}

std::string FolderOf(const fs::path& file) {
  const std::string folder = file.parent_path().string();
  return folder.empty() ? "." : folder;
}

absl::StatusOr<std::string> RandomDigits(const std::string& path) {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) return CannotWrite(path, errno);
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

// A new file with a name that no file has: prefix, digits, suffix.
struct NewFile {
  Descriptor file;
  std::string name;
};
absl::StatusOr<NewFile> MakeNewFile(int folder, absl::string_view prefix, absl::string_view suffix,
                                    const std::string& path) {
  constexpr int kMostTries = 16;
  for (int i = 0; i < kMostTries; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const std::string digits, RandomDigits(path));
    std::string name = absl::StrCat(prefix, digits, suffix);
    const int file =
        openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) return NewFile{Descriptor(file), std::move(name)};
    if (errno != EEXIST) return CannotWrite(path, errno);
  }
  return CannotWrite(path, EEXIST);
}

// 0, or the error's number. What cannot be flushed, such as a file in memory, counts as flushed.
int Flush(int file) {
  if (fsync(file) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP) return 0;
  return errno;
}

int WriteAndFlush(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Flush(file);
}

// A new file on its way to its target's name.
class StagedFile {
 public:
  static absl::StatusOr<StagedFile> Create(const std::string& path);
  StagedFile(StagedFile&&) = default;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  absl::Status Write(absl::string_view bytes);
  // Gives the new file its target's name. With `undoable` the old file gets a second name first.
  absl::Status Replace(bool undoable);
  // Puts back what Replace replaced. False where the file system has no second names.
  bool Undo();
  void FlushFolder();
  const std::string& path() const { return path_; }

 private:
  StagedFile() = default;
  absl::Status LookAtTarget();
  bool IsOurs(const std::string& name) const;

  std::string path_;    // as the caller wrote it
  std::string target_;  // within the folder
  Descriptor folder_;
  NewFile temporary_;
  std::string old_;  // the second name of the old file; empty: it has none
  bool had_target_ = false;
};

absl::StatusOr<StagedFile> StagedFile::Create(const std::string& path) {
  StagedFile staged;
  staged.path_ = path;
  VOXCONV_ASSIGN_OR_RETURN(const fs::path target, FollowLinks(path));
  staged.target_ = target.filename().string();
  if (staged.target_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  // O_PATH asks no permission to list the folder.
  staged.folder_ = Descriptor(open(FolderOf(target).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (staged.folder_.get() < 0) return CannotWrite(path, errno);
  VOXCONV_RETURN_IF_ERROR(staged.LookAtTarget());
  VOXCONV_ASSIGN_OR_RETURN(staged.temporary_,
                           MakeNewFile(staged.folder_.get(), kTemporaryPrefix, "", path));
  (void)flock(staged.temporary_.file.get(), LOCK_EX | LOCK_NB);  // RemoveAbandonedFiles
  return staged;
}

absl::Status StagedFile::LookAtTarget() {
  struct stat status {};
  if (fstatat(folder_.get(), target_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : CannotWrite(path_, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": is not a regular file"));
  }
  if (faccessat(folder_.get(), target_.c_str(), W_OK, AT_EACCESS) != 0) {
    return CannotWrite(path_, errno);
  }
  had_target_ = true;
  return absl::OkStatus();
}

bool StagedFile::IsOurs(const std::string& name) const {
  struct stat ours {
  }, there{};
  return temporary_.file.get() != kNoFile && fstat(temporary_.file.get(), &ours) == 0 &&
         fstatat(folder_.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

StagedFile::~StagedFile() {
  if (!temporary_.name.empty() && IsOurs(temporary_.name)) {
    unlinkat(folder_.get(), temporary_.name.c_str(), 0);
  }
  if (!old_.empty()) unlinkat(folder_.get(), old_.c_str(), 0);
}

absl::Status StagedFile::Write(absl::string_view bytes) {
  struct stat status {};
  if (had_target_ && fstatat(folder_.get(), target_.c_str(), &status, 0) == 0) {
    constexpr mode_t kPermissions = 0777;
    (void)fchmod(temporary_.file.get(), status.st_mode & kPermissions);
  }
  const int error = WriteAndFlush(temporary_.file.get(), bytes);
  return error == 0 ? absl::OkStatus() : CannotWrite(path_, error);
}

absl::Status StagedFile::Replace(bool undoable) {
  if (undoable && had_target_) {
    VOXCONV_ASSIGN_OR_RETURN(const std::string digits, RandomDigits(path_));
    const std::string name = absl::StrCat(kTemporaryPrefix, digits);
    if (linkat(folder_.get(), target_.c_str(), folder_.get(), name.c_str(), 0) == 0) old_ = name;
  }
  if (renameat(folder_.get(), temporary_.name.c_str(), folder_.get(), target_.c_str()) == 0) {
    temporary_.name.clear();
    return absl::OkStatus();
  }
  return CannotWrite(path_, errno);
}

bool StagedFile::Undo() {
  if (!old_.empty()) {
    if (renameat(folder_.get(), old_.c_str(), folder_.get(), target_.c_str()) != 0) return false;
    old_.clear();
    return true;
  }
  return !had_target_ && IsOurs(target_) && unlinkat(folder_.get(), target_.c_str(), 0) == 0;
}

// A folder that may not be read cannot be flushed; the file's bytes were.
void StagedFile::FlushFolder() {
  const Descriptor folder(openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)Flush(folder.get());
}

}  // namespace

absl::Status WriteFiles(absl::Span<const FileContent> files) {
  std::vector<StagedFile> staged;
  staged.reserve(files.size());
  for (const FileContent& file : files) {
    VOXCONV_ASSIGN_OR_RETURN(StagedFile next, StagedFile::Create(file.path));
    VOXCONV_RETURN_IF_ERROR(next.Write(file.bytes));
    staged.push_back(std::move(next));
  }
  for (size_t i = 0; i < staged.size(); ++i) {
    absl::Status status = staged[i].Replace(/*undoable=*/staged.size() > 1);
    if (status.ok()) continue;
    for (size_t j = 0; j < i; ++j) {
      if (staged[j].Undo()) continue;
      status = absl::Status(status.code(), absl::StrCat(status.message(), "; ", staged[j].path(),
                                                        " was written before"));
    }
    return status;
  }
  for (StagedFile& file : staged) file.FlushFolder();
  return absl::OkStatus();
}

absl::Status WriteFileBytes(const std::string& path, absl::string_view bytes) {
  return WriteFiles({{path, bytes}});
}

absl::Status CheckWriteFile(const std::string& path) { return StagedFile::Create(path).status(); }

absl::StatusOr<std::string> WriteNewFile(const std::string& folder, absl::string_view prefix,
                                         absl::string_view suffix, absl::string_view bytes) {
  const Descriptor at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) return CannotWrite(folder, errno);
  VOXCONV_ASSIGN_OR_RETURN(const NewFile made, MakeNewFile(at.get(), prefix, suffix, folder));
  const std::string path = (fs::path(folder) / made.name).string();
  const int error = WriteAndFlush(made.file.get(), bytes);
  if (error == 0) return path;
  unlinkat(at.get(), made.name.c_str(), 0);
  return CannotWrite(path, error);
}

void RemoveAbandonedFiles(const std::string& folder) {
  constexpr size_t kDigits = 16;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    absl::string_view digits = name;
    if (!absl::ConsumePrefix(&digits, kTemporaryPrefix) || digits.size() != kDigits ||
        !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
      continue;
    }
    std::error_code ignored;
    if (!fs::is_regular_file(at->symlink_status(ignored))) continue;
    const Descriptor file(open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0 || flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    unlink(at->path().c_str());
  }
}

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path, int most_seconds) {
  VOXCONV_ASSIGN_OR_RETURN(const fs::path target, FollowLinks(path));
  const int folder = open(FolderOf(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError(path, "its folder cannot be opened", errno);
  FolderLock lock(folder);
  const absl::Time begin = absl::Now();
  while (flock(folder, LOCK_EX | LOCK_NB) != 0) {
    // Network file systems lock no folders.
    if (errno != EWOULDBLOCK && errno != EINTR) return lock;
    if (absl::Now() - begin >= absl::Seconds(most_seconds)) {
      return absl::UnavailableError(absl::StrCat(
          path, ": another program has locked its folder",
          most_seconds > 0 ? absl::StrCat(" for ", most_seconds, " s") : std::string()));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : folder_(std::exchange(other.folder_, kNoFile)) {}

FolderLock::~FolderLock() {
  if (folder_ != kNoFile) close(folder_);
}

}  // namespace voxconv
