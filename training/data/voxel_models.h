// SPDX-License-Identifier: Apache-2.0
// Voxel models in one .npz file; training/data/dataset.h describes its arrays.
#ifndef VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_
#define VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/training/data/dataset.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<Dataset>> OpenVoxelModels(const std::string& path,
                                                         const std::string& split);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_VOXEL_MODELS_H_
