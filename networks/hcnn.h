// SPDX-License-Identifier: Apache-2.0
// The networks of H-CNN ("Spatial Hashing Based CNN for 3D Shape Analysis", Section 4). As
// networks/models.h. The paper gives its operators and levels, not its layers. Where it is silent,
// both networks follow octree networks (O-CNN): at each level a convolution 3^3, batch norm and
// ReLU, and max pooling over 2^3 voxels. The channels are 16 at the finest level and double with
// each level.
#ifndef VOXCONV_NETWORKS_HCNN_H_
#define VOXCONV_NETWORKS_HCNN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

struct HcnnOptions {
  double width = 1.0;  // scales every channel count but those of the input and the classes
  int64_t in_channels = 1;
  int64_t classes = 10;
  int levels = 3;      // how often the resolution is halved: 3 takes 32^3 voxels to 4^3
  double dropout = 0;  // between the fully connected layers; 0: none
};

// One result for each batch sample. At the coarsest level another convolution and two fully
// connected layers, the first of 128 channels with batch norm and ReLU. The first one weighs each
// of the 4^3 cells by itself, so it is a convolution whose kernel covers them all. Cells that are
// not there count as zeros. It has one output voxel for a cloud in [-h, h)^3 with h = 2^(levels +
// 1) voxels, that is, for a unit sphere of N = 4 * 2^levels voxels across. A larger cloud has
// several, whose maximum counts.
absl::StatusOr<NetworkGraph> MakeHcnnClassifier(const HcnnOptions& options);

// One result for each voxel of the input. The levels of the classifier, and back: at each level a
// transposed convolution 3^3, batch norm, ReLU, and max unpooling by the switches of the level's
// pooling. A transposed convolution of stride 1 has the voxels of its input as outputs, so it is a
// submanifold convolution with its weights mirrored.
absl::StatusOr<NetworkGraph> MakeHcnnSegmenter(const HcnnOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_HCNN_H_
