// SPDX-License-Identifier: Apache-2.0
// Labelled frames of scanners; training/data/dataset.h describes their files.
#ifndef VOXCONV_TRAINING_DATA_SCAN_SETS_H_
#define VOXCONV_TRAINING_DATA_SCAN_SETS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/training/data/dataset.h"

namespace voxconv {

// Frames in .npz files.
absl::StatusOr<std::unique_ptr<Dataset>> OpenFrames(const std::vector<std::string>& files);

// SemanticKITTI's folders, which are below `folder`.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSemanticKitti(const std::string& folder,
                                                           const std::string& split);

// The class of a raw SemanticKITTI label, without its instance: 0 to 18, or -1 for labels that are
// ignored. kInvalidArgument for a label that the data set does not define. (Behley et al., 2019,
// the learning map of 19 classes, in which moving objects belong to the class of those at rest.)
absl::StatusOr<int32_t> SemanticKittiClass(uint32_t raw);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_SCAN_SETS_H_
