// SPDX-License-Identifier: Apache-2.0
// What tells the content of one data set from that of another (Dataset::ContentHash).
#ifndef VOXCONV_TRAINING_DATA_CONTENT_HASH_H_
#define VOXCONV_TRAINING_DATA_CONTENT_HASH_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace voxconv {

// Returns the hash of the files' bytes, in the order of `paths`, as 16 hex digits. O(bytes). Errors
// of HashFile.
absl::StatusOr<std::string> HashFiles(absl::Span<const std::string> paths);

// Returns the hash of the files' paths within `folder` and of their sizes, in the order of `paths`,
// as 16 hex digits. A file whose size cannot be read counts without a size. O(files).
std::string HashNamesAndSizes(const std::string& folder, absl::Span<const std::string> paths);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_CONTENT_HASH_H_
