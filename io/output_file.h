// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_OUTPUT_FILE_H_
#define VOXCONV_IO_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace voxconv {

// The one way in which the program replaces files. New bytes go to a temporary file in the target's
// folder, under a random name that no file has. They are flushed to the disk. Then the temporary
// file is renamed to the target. So a target is the old file or the new one, whenever the program
// ends, and nothing is truncated or removed that these functions did not make. A temporary file is
// called ".voxconv-" and 16 hex digits, and is locked (flock) until it is renamed. Only a program
// that is killed leaves one.
//
// A symbolic link stays a link: the file that it names is replaced, or made if it is missing. The
// permissions of a replaced file are kept. Another hard link to it keeps the old bytes.
//
// Errors: kInvalidArgument for a target that is no regular file (a folder, a pipe, a device).
// kPermissionDenied for one that may not be written. kUnavailable with the system's reason.

struct FileContent {
  std::string path;
  absl::string_view bytes;
};

// Replaces or makes all of the files, or none: bytes are on the disk before the first file is
// renamed, and what was renamed is put back if a later one fails. Two files must not be the same.
absl::Status WriteFiles(absl::Span<const FileContent> files);
absl::Status WriteFileBytes(const std::string& path, absl::string_view bytes);

// Checks that WriteFileBytes can write there. Makes a temporary file and removes it. Callers ask
// this before long work.
absl::Status CheckWriteFile(const std::string& path);

// Writes a file of a new name, PREFIX, 16 hex digits and SUFFIX, into an existing folder. Returns
// its path.
absl::StatusOr<std::string> WriteNewFile(const std::string& folder, absl::string_view prefix,
                                         absl::string_view suffix, absl::string_view bytes);

// Removes the temporary files of killed programs from a folder. These are the files that no program
// has locked. A file that cannot be removed stays. On a file system without locks all files stay.
void RemoveAbandonedFiles(const std::string& folder);

// Keeps other programs that ask for it from changing files in one folder, from Take until it is
// destroyed. Who reads a file, changes it and writes it holds this lock meanwhile. The folder
// itself is locked (flock), since a file that is replaced cannot hold a lock. A file system without
// locks gives one that locks nothing.
class FolderLock {
 public:
  // Locks the folder of `path` after links. Waits at most so many seconds; then kUnavailable.
  static absl::StatusOr<FolderLock> Take(const std::string& path, int most_seconds = 30);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int folder) : folder_(folder) {}
  int folder_;
};

}  // namespace voxconv

#endif  // VOXCONV_IO_OUTPUT_FILE_H_
