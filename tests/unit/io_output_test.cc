// SPDX-License-Identifier: Apache-2.0
// Files are replaced in one step, and nothing else is touched (io/output_file.h).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "io_test_util.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/output_file.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class OutputFile : public testing::Test {
 protected:
  // The names of all files of the folder.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.Path("")))
      names.push_back(entry.path().filename().string());
    return names;
  }
  TempFolder folder_;
};

TEST_F(OutputFile, LeavesOneFileAndNoOther) {
  const std::string path = folder_.Path("out.npz");
  EXPECT_TRUE(CheckWriteFile(path).ok());
  EXPECT_THAT(Names(), IsEmpty());
  ASSERT_TRUE(WriteFileBytes(path, "new").ok());
  ASSERT_TRUE(WriteFileBytes(path, "newer").ok());
  EXPECT_EQ(FileBytes(path), "newer");
  EXPECT_THAT(Names(), UnorderedElementsAre("out.npz"));
}

// One that a program still writes is locked.
TEST_F(OutputFile, RemovesTheTemporaryFilesOfKilledProgramsAlone) {
  for (const char* name : {".voxconv-0123456789abcdef", ".voxconv-fedcba9876543210",
                           ".voxconv-notes", ".voxconv-0123456789abcdeg", "out"}) {
    folder_.Write(name, "bytes");
  }
  fs::create_directory(folder_.Path(".voxconv-00000000000000aa"));
  const int written = open(folder_.Path(".voxconv-fedcba9876543210").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(written, 0);
  ASSERT_EQ(flock(written, LOCK_EX | LOCK_NB), 0);
  RemoveAbandonedFiles(folder_.Path(""));
  EXPECT_THAT(Names(), UnorderedElementsAre(".voxconv-fedcba9876543210", ".voxconv-notes",
                                            ".voxconv-0123456789abcdeg", "out",
                                            ".voxconv-00000000000000aa"));
  close(written);
  RemoveAbandonedFiles(folder_.Path(""));
  EXPECT_FALSE(fs::exists(folder_.Path(".voxconv-fedcba9876543210")));
  RemoveAbandonedFiles(folder_.Path("nowhere"));
}

// Names that temporary files had before belong to their owner.
TEST_F(OutputFile, TouchesNoFileOfAnotherName) {
  const std::string path = folder_.Path("out");
  for (const char* suffix : {".partial", ".new", ".tmp", "~"}) {
    folder_.Write(absl::StrCat("out", suffix), "mine");
  }
  ASSERT_TRUE(CheckWriteFile(path).ok());
  ASSERT_TRUE(WriteFileBytes(path, "bytes").ok());
  const NpyArray array = MakeNpyArray({1}, absl::Span<const int32_t>({7}));
  ASSERT_TRUE(WriteNpz(path, {{"a", array}}).ok());
  for (const char* suffix : {".partial", ".new", ".tmp", "~"}) {
    EXPECT_EQ(FileBytes(folder_.Path(absl::StrCat("out", suffix))), "mine") << suffix;
  }
  EXPECT_THAT(Names(), SizeIs(5));
}

TEST_F(OutputFile, ALinkStaysAndItsFileIsReplaced) {
  const std::string real = folder_.Write("real", "old"), link = folder_.Path("link");
  fs::create_symlink("real", link);
  ASSERT_TRUE(WriteFileBytes(link, "new").ok());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(FileBytes(real), "new");
  // A link to a file in a folder of its own that is not there yet.
  fs::create_directory(folder_.Path("sub"));
  fs::create_symlink("sub/made", folder_.Path("dangling"));
  ASSERT_TRUE(WriteFileBytes(folder_.Path("dangling"), "made").ok());
  EXPECT_EQ(FileBytes(folder_.Path("sub/made")), "made");
  fs::create_symlink("round", folder_.Path("round"));
  EXPECT_FALSE(WriteFileBytes(folder_.Path("round"), "x").ok());
}

TEST_F(OutputFile, KeepsPermissionsAndAsksForThem) {
  const std::string path = folder_.Write("out", "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  ASSERT_TRUE(WriteFileBytes(path, "new").ok());
  EXPECT_EQ(fs::status(path).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  if (geteuid() == 0) return;  // may write everything
  fs::permissions(path, fs::perms::owner_read);
  EXPECT_THAT(WriteFileBytes(path, "newer"),
              FailsWith(absl::StatusCode::kPermissionDenied, "cannot be written"));
  EXPECT_EQ(FileBytes(path), "new");
}

TEST_F(OutputFile, RefusesWhatIsNoFile) {
  EXPECT_THAT(CheckWriteFile("/dev/null"), FailsWith(kInvalid, "not a regular file"));
  EXPECT_THAT(CheckWriteFile(folder_.Path("")), FailsWith(kInvalid, "directory"));
  const std::string pipe = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(WriteFileBytes(pipe, "x"), FailsWith(kInvalid, "not a regular file"));
  EXPECT_THAT(CheckWriteFile("/nowhere/at/all"),
              FailsWith(absl::StatusCode::kUnavailable, "/nowhere/at/all: cannot be written"));
}

TEST_F(OutputFile, BothFilesOrNeither) {
  const std::string a = folder_.Write("a", "old a"), b = folder_.Path("b");
  ASSERT_TRUE(WriteFiles({{a, "new a"}, {b, "new b"}}).ok());
  EXPECT_EQ(FileBytes(a), "new a");
  EXPECT_EQ(FileBytes(b), "new b");
  EXPECT_FALSE(WriteFiles({{a, "lost"}, {"/nowhere/c", "lost"}}).ok());
  EXPECT_EQ(FileBytes(a), "new a");
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "b"));
}

// The last rename fails after the others were done.
TEST_F(OutputFile, AFailedRenameTakesTheFirstOneBack) {
  const std::string a = folder_.Write("a", "old a"), made = folder_.Path("made");
  fs::create_directory(folder_.Path("sub"));
  const std::string b = folder_.Path("sub/b");
  std::atomic<bool> stop = false;
  // Turns b into a folder and back as fast as it can; some renames meet the folder.
  std::thread other([&] {
    while (!stop) {
      std::error_code error;
      fs::create_directory(b, error);
      fs::remove(b, error);
    }
  });
  int failed = 0;
  for (int i = 0; i < 1000 && failed < 3; ++i) {
    ASSERT_TRUE(WriteFileBytes(a, "old a").ok());
    fs::remove(made);
    const absl::Status status = WriteFiles({{a, "new a"}, {made, "made"}, {b, "b"}});
    if (status.ok()) {
      EXPECT_EQ(FileBytes(a), "new a");
      continue;
    }
    ++failed;
    EXPECT_EQ(FileBytes(a), "old a") << status;
    EXPECT_FALSE(fs::exists(made)) << status;
  }
  stop = true;
  other.join();
  EXPECT_GT(failed, 0);
  for (const std::string& name : Names()) EXPECT_FALSE(absl::StartsWith(name, ".")) << name;
}

TEST_F(OutputFile, ALockKeepsOthersOut) {
  const std::string counter = folder_.Write("counter", "0");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const auto lock = FolderLock::Take(counter);
        ASSERT_TRUE(lock.ok()) << lock.status();
        const int value = std::stoi(FileBytes(counter));
        ASSERT_TRUE(WriteFileBytes(counter, absl::StrCat(value + 1)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(FileBytes(counter), "80");
}

TEST_F(OutputFile, WritesUnderANewName) {
  const auto first = WriteNewFile(folder_.Path(""), "plan-", ".json", "1");
  const auto second = WriteNewFile(folder_.Path(""), "plan-", ".json", "2");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(FileBytes(*first), "1");
  EXPECT_TRUE(absl::EndsWith(*first, ".json"));
}

// What is no file is refused at once: nobody ever writes into this pipe.
TEST_F(OutputFile, ReadingRefusesPipesAndSparseGiants) {
  const std::string pipe = folder_.Path("pipe.bin");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadFileBytes(pipe), FailsWith(kInvalid, "not a regular file"));
  EXPECT_THAT(ReadFileBytes("/dev/zero"), FailsWith(kInvalid, "not a regular file"));
  const std::string giant = folder_.Write("giant.bin", "x");
  ASSERT_EQ(truncate(giant.c_str(), off_t{1} << 42), 0);
  EXPECT_THAT(ReadFileBytes(giant),
              FailsWith(absl::StatusCode::kResourceExhausted, "4398046511104 bytes"));
}

}  // namespace
}  // namespace voxconv
