// SPDX-License-Identifier: Apache-2.0
// The papers' networks. Their parameters have no values until InitializeParameters or
// NetworkGraph::SetParameter gives them some.
#ifndef VOXCONV_NETWORKS_MODELS_H_
#define VOXCONV_NETWORKS_MODELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/graph_builder.h"

namespace voxconv {

// `width` scales every channel count but those of the input and of the classes. kInvalidArgument
// for a width that gives a channel count that is fractional or 0.

// Segmentation: 42 convolutions and 7 shortcuts. `classes` 0 leaves the linear head out. Choy et
// al., 2019, as PCEngine, TorchSparse and Minuet run it (rule quantize). `dropout` stands before
// the head.
absl::StatusOr<NetworkGraph> MakeMinkUNet42(double width, int64_t in_channels, int64_t classes,
                                            double dropout = 0);

// Detection backbone: 21 convolutions (rule quantize).
absl::StatusOr<NetworkGraph> MakeSparseResNet21(double width, int64_t in_channels);
// The same as a part of another network. Returns its last node.
absl::StatusOr<int> AddSparseResNet21(double width, int64_t in_channels, GraphBuilder& b);
// Classification: SparseResNet21, the mean over the voxels of each batch sample, dropout, a linear
// layer.
absl::StatusOr<NetworkGraph> MakeSparseResNetClassifier(double width, int64_t in_channels,
                                                        int64_t classes, double dropout = 0);

// The sparse encoder of CenterPoint and SECOND: 21 convolutions (rule dilate).
// docs/decisions/2026-11-21-centerpoint-strides.md. `grid` is the box of voxels that the detector
// is built for, such as {0, 0, 0} .. {1439, 1439, 40}. Strided layers then drop outputs outside of
// it, as SpConv does for a tensor of this spatial shape. Without it they keep all. kInvalidArgument
// if its lower corner is no multiple of the strides 8, 8 and 16, or if it is smaller than a kernel.
absl::StatusOr<NetworkGraph> MakeCenterPointEncoder(int64_t in_channels, double width = 1.0,
                                                    const std::optional<Box>& grid = {});

struct ModelOptions {
  double width = 1.0;
  int64_t in_channels = 0;       // 0: the model's usual number
  int64_t classes = 19;          // segmentation and classification only
  int levels = 3;                // networks of H-CNN only (HcnnOptions)
  double dropout = 0;            // before the last layer of a trainable network; 0: none
  std::optional<Box> grid = {};  // centerpoint only; others refuse it
};

// "minkunet42", "sparseresnet21", "centerpoint".
std::vector<std::string> ModelNames();
// The model of this name. kInvalidArgument lists the names for an unknown one. kResourceExhausted
// for one whose parameters take more than the machine's memory.
absl::StatusOr<NetworkGraph> MakeModel(absl::string_view name, const ModelOptions& options);

// The same for networks that end with one value a class: "minkunet42" and "hcnn_segmenter" for each
// voxel, "hcnn_classifier" and "sparseresnet21_classifier" for each batch sample.
std::vector<std::string> TrainableNames();
absl::StatusOr<NetworkGraph> MakeTrainable(absl::string_view name, const ModelOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MODELS_H_
