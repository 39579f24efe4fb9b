#ifndef VOXCONV_IO_FILE_BYTES_H_
#define VOXCONV_IO_FILE_BYTES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// Checks that `path` is a regular file and not empty. Does not open it, so that permissions are not
// checked. kNotFound if it is missing. kInvalidArgument for a directory, a pipe and an empty file.
absl::Status CheckIsFile(const std::string& path);

// Reads the whole file. Errors of CheckIsFile; kPermissionDenied; kUnavailable if reading fails.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path);

// Checks that WriteFileBytes can write there. Refuses a directory and a device, because
// WriteFileBytes replaces what has the name. Callers ask this before long work.
absl::Status CheckWriteFile(const std::string& path);

// Writes `bytes` to a temporary file beside `path`, and then renames it to `path`. A write that is
// interrupted thus leaves no half file at `path`.
absl::Status WriteFileBytes(const std::string& path, absl::string_view bytes);

}  // namespace voxconv

#endif  // VOXCONV_IO_FILE_BYTES_H_
