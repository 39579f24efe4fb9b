// SPDX-License-Identifier: Apache-2.0
// Voxel models in one .npz file; training/data/dataset.h describes its arrays.
#ifndef VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_
#define VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/training/data/dataset.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<Dataset>> OpenVoxelModels(const std::string& path,
                                                         const std::string& split);

// What the kinds of data sets share. Refuses a label below `least` or from `classes` on; the
// message gives the array, the value and its place.
absl::Status CheckLabels(absl::Span<const int32_t> labels, int32_t least, int64_t classes,
                         absl::string_view array);
// "class 0", "class 1", ..., for sets that name no classes.
std::vector<std::string> NumberedClasses(int64_t classes);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_
