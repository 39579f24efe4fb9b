// SPDX-License-Identifier: Apache-2.0
// What tells the content of one data set from that of another (Dataset::ContentHash).
#ifndef VOXCONV_TRAINING_DATA_CONTENT_HASH_H_
#define VOXCONV_TRAINING_DATA_CONTENT_HASH_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace voxconv {

// Of the files' bytes, in their order. O(bytes). Errors of HashFile.
absl::StatusOr<std::string> HashFiles(absl::Span<const std::string> paths);

// Of the files' paths within `folder` and their sizes, in their order. A file that cannot be looked
// at counts without a size. O(files).
std::string HashNamesAndSizes(const std::string& folder, absl::Span<const std::string> paths);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_CONTENT_HASH_H_
