#ifndef VOXCONV_IO_FILE_BYTES_H_
#define VOXCONV_IO_FILE_BYTES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// OK when `path` names a regular, non-empty file. Errors: kNotFound (missing), kInvalidArgument
// (a directory, a pipe, empty). Opens nothing, so permissions are not checked.
absl::Status CheckIsFile(const std::string& path);

// The whole file. Errors: those of CheckIsFile, kPermissionDenied, kUnavailable (read error).
absl::StatusOr<std::string> ReadFileBytes(const std::string& path);

// Whether WriteFileBytes can write there. It replaces what has the name, so that a directory or a
// device is refused. To be asked before long work.
absl::Status CheckWriteFile(const std::string& path);

// Writes `bytes` to a temporary file beside `path` and renames it, so that an interrupted write
// leaves no half file under the name that was asked for.
absl::Status WriteFileBytes(const std::string& path, absl::string_view bytes);

}  // namespace voxconv

#endif  // VOXCONV_IO_FILE_BYTES_H_
