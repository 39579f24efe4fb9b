// SPDX-License-Identifier: Apache-2.0
// Triangle meshes with one label each, in one .npz file, and folders of clouds and meshes with a
// class each; training/data/dataset.h describes both.
#ifndef VOXCONV_TRAINING_DATA_MESHES_H_
#define VOXCONV_TRAINING_DATA_MESHES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/training/data/dataset.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<Dataset>> OpenMeshModels(const std::string& path,
                                                        const std::string& split,
                                                        const DatasetOptions& options);

absl::StatusOr<std::unique_ptr<Dataset>> OpenClassFolders(const std::string& folder,
                                                          const std::string& split,
                                                          const DatasetOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_MESHES_H_
