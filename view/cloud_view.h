// SPDX-License-Identifier: Apache-2.0
// What a page shows of point clouds and of the layers of networks: voxels, and values to colour
// them by.
#ifndef VOXCONV_VIEW_CLOUD_VIEW_H_
#define VOXCONV_VIEW_CLOUD_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/types.h"
#include "voxconv/io/voxelize.h"

namespace voxconv::view {

// One value for each voxel. A voxel with NaN or Inf is grey.
struct Colouring {
  std::string name;
  std::vector<float> values;  // [N]
};

struct VoxelSet {
  std::string name;
  Int3 edge{1, 1, 1};              // of a voxel, in units of the finest: the tensor stride
  std::vector<Coordinate> coords;  // [N]
  std::vector<Colouring> colourings;
  int64_t of = 0;  // voxels before Sample; N where none was left out

  int64_t size() const { return static_cast<int64_t>(coords.size()); }
};

// The cloud's voxels, coloured by each of its features.
VoxelSet ViewCloud(const std::string& name, const VoxelizedCloud& cloud);

// How many voxels of `coordinates` lie within 3x3x3 of each, with itself: the pairs of each output
// row of the kernel map that `mapping` makes for a submanifold convolution with kernel 3. Errors of
// QueryPairs. kInternal for a map with a row that is not there. Synchronises the stream.
absl::StatusOr<Colouring> CountNeighbours(const Mapping& mapping,
                                          const CoordinateSetPtr& coordinates,
                                          const ExecutionContext& context);

// The voxels of a layer's output, coloured by the Euclidean norm of their features, by the channel
// with the largest feature, and by each of `channels`. Copies to the host. kInvalidArgument for a
// tensor without coordinates, and for a channel that is not there, which the message names with
// what is allowed.
absl::StatusOr<VoxelSet> ViewLayer(const std::string& name, const SparseTensor& output,
                                   absl::Span<const int64_t> channels,
                                   const ExecutionContext& context);

// Leaves at most `limit` voxels, spread evenly over the rows. `limit` is above 0.
void Sample(int64_t limit, VoxelSet& set);

}  // namespace voxconv::view

#endif  // VOXCONV_VIEW_CLOUD_VIEW_H_
