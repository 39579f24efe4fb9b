// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "voxconv/core/machine_memory.h"

namespace voxconv {
namespace {

class File {
 public:
  explicit File(int file) : file_(file) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ >= 0) close(file_);
  }
  int get() const { return file_; }

 private:
  int file_;
};

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(error));
  return error == EACCES || error == EPERM ? absl::PermissionDeniedError(message)
                                           : absl::UnavailableError(message);
}

}  // namespace

absl::Status CheckIsFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  if (std::filesystem::is_directory(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFileBytes(const std::string& path) {
  if (absl::Status status = CheckIsFile(path); !status.ok()) return status;
  // What was a file a moment ago may be a pipe now: O_NONBLOCK opens it without waiting, and the
  // open file is looked at.
  const File file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return OpenError(path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return OpenError(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  // A sparse file may claim any size.
  if (const int64_t memory = MachineMemory(); status.st_size > memory) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": has ", status.st_size, " bytes; this machine's memory has ", memory));
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  if (done == bytes.size()) return bytes;
  return absl::UnavailableError(absl::StrCat(path, ": read ", done, " bytes of ", bytes.size(),
                                             ": the file changed or failed"));
}

}  // namespace voxconv
