// SPDX-License-Identifier: Apache-2.0
// Points with labels, and voxels with labels.
#ifndef VOXCONV_TRAINING_DATA_LABELLED_CLOUD_H_
#define VOXCONV_TRAINING_DATA_LABELLED_CLOUD_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/types.h"
#include "voxconv/io/point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

// What a data set is labelled by: every point, or every cloud as a whole.
enum class LabelKind { kPoint, kCloud };

// One object or frame in host memory. `labels` has one entry for each point, or one in all.
struct LabelledCloud {
  PointCloud cloud;
  std::vector<int32_t> labels;
};

// Voxels of one or more clouds, ready for a network. Rows are sorted by b. Those of one cloud have
// the order of VoxelizeOptions::order.
struct LabelledVoxels {
  std::vector<Coordinate> coordinates;  // [N]; b is the place of the cloud in the batch
  std::vector<float> features;          // [N, channels]
  int64_t channels = 0;
  int32_t samples = 0;          // clouds
  std::vector<int64_t> clouds;  // of a batch: the index of each in its data set
  std::vector<int32_t> labels;  // one for each voxel, or one for each cloud
};

// Voxelises a cloud (io/voxelize.h). With kPoint, a voxel gets the label that most of its points
// have, the lowest of equals; points with the label `ignored` do not count, and a voxel without
// others gets `ignored`. `channels`: see FeaturesWithChannels. O(N log N). Errors of Voxelize.
absl::StatusOr<LabelledVoxels> VoxelizeLabelled(const LabelledCloud& cloud, LabelKind kind,
                                                int32_t ignored, int64_t channels,
                                                const VoxelizeOptions& options);

// Appends one cloud to a batch. Every cloud of a batch has the same channels (checked).
void AppendSample(const LabelledVoxels& sample, LabelledVoxels& batch);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_LABELLED_CLOUD_H_
