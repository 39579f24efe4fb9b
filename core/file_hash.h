// SPDX-License-Identifier: Apache-2.0
// The hash of a file's bytes, which tells one build of a program or a plugin from another.
#ifndef VOXCONV_CORE_FILE_HASH_H_
#define VOXCONV_CORE_FILE_HASH_H_

#include <string>

#include "absl/status/statusor.h"

namespace voxconv {

// FNV-1a (core/fnv.h) of all bytes of the file `path`, as 16 hex digits. kNotFound for a file that
// cannot be read. O(bytes).
absl::StatusOr<std::string> HashFile(const std::string& path);

}  // namespace voxconv

#endif  // VOXCONV_CORE_FILE_HASH_H_
