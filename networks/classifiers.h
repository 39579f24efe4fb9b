// SPDX-License-Identifier: Apache-2.0
// Networks that give one result for each batch sample. As networks/models.h.
#ifndef VOXCONV_NETWORKS_CLASSIFIERS_H_
#define VOXCONV_NETWORKS_CLASSIFIERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

struct ClassifierOptions {
  double width = 1.0;  // scales every channel count but those of the input and the classes
  int64_t in_channels = 1;
  int64_t classes = 10;
  // H-CNN only: how often the resolution is halved. 3 takes 32^3 voxels to 4^3.
  int levels = 3;
};

// H-CNN's classification network (Section 4). At each level: convolution 3^3, batch norm, ReLU, and
// max pooling over 2^3 voxels. The channels are 16 at the finest level and double with each level.
// At the coarsest one, which has 4^3 cells, another convolution. Where the paper is silent, this
// follows octree networks (O-CNN): two fully connected layers, the first of 128 channels. Between
// them and the cells stands a maximum over the cells of each sample, because cells that are not
// there have no features that a fully connected layer could read.
absl::StatusOr<NetworkGraph> MakeHcnnClassifier(const ClassifierOptions& options);

// SparseResNet21 (networks/models.h), the mean over the voxels of each sample, and a linear layer.
absl::StatusOr<NetworkGraph> MakeSparseResNetClassifier(const ClassifierOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_CLASSIFIERS_H_
