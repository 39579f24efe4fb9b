// SPDX-License-Identifier: Apache-2.0
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

// Reads the whole file. Never waits for a pipe. Errors of CheckIsFile; kPermissionDenied;
// kResourceExhausted for a file that is larger than the machine's memory; kUnavailable if reading
// fails.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path);

}  // namespace voxconv

#endif  // VOXCONV_IO_FILE_BYTES_H_
