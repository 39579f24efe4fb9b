// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/labelled_cloud.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "voxconv/core/check.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

// The label that most of a voxel's points have.
class LabelVotes {
 public:
  explicit LabelVotes(int32_t ignored) : ignored_(ignored) {}

  void Add(int32_t label) {
    if (label != ignored_) ++votes_[label];
  }
  int32_t Winner() const {
    int32_t winner = ignored_;
    int64_t most = 0;
    for (const auto& [label, votes] : votes_) {  // ascending labels: the lowest of equals stays
      if (votes > most) std::tie(winner, most) = std::pair(label, votes);
    }
    return winner;
  }

 private:
  int32_t ignored_;
  std::map<int32_t, int64_t> votes_;
};

}  // namespace

absl::StatusOr<LabelledVoxels> VoxelizeLabelled(const LabelledCloud& cloud, LabelKind kind,
                                                int32_t ignored, int64_t channels,
                                                const VoxelizeOptions& options) {
  std::vector<int64_t> voxel_of_point;
  VOXCONV_ASSIGN_OR_RETURN(
      const VoxelizedCloud voxels,
      Voxelize(cloud.cloud, options, kind == LabelKind::kPoint ? &voxel_of_point : nullptr));
  LabelledVoxels result{.coordinates = voxels.coords,
                        .features = FeaturesWithChannels(voxels, channels),
                        .channels = channels,
                        .samples = 1};
  if (kind == LabelKind::kCloud) {
    result.labels = cloud.labels;
    return result;
  }
  VOXCONV_CHECK(cloud.labels.size() == voxel_of_point.size());
  std::vector<LabelVotes> votes(voxels.coords.size(), LabelVotes(ignored));
  for (size_t i = 0; i < voxel_of_point.size(); ++i) votes[voxel_of_point[i]].Add(cloud.labels[i]);
  for (const LabelVotes& of_voxel : votes) result.labels.push_back(of_voxel.Winner());
  return result;
}

void AppendSample(const LabelledVoxels& sample, LabelledVoxels& batch) {
  const int32_t place = batch.samples++;
  VOXCONV_CHECK(place == 0 || batch.channels == sample.channels);
  batch.channels = sample.channels;
  for (Coordinate coordinate : sample.coordinates) {
    coordinate.b = place;
    batch.coordinates.push_back(coordinate);
  }
  batch.features.insert(batch.features.end(), sample.features.begin(), sample.features.end());
  batch.labels.insert(batch.labels.end(), sample.labels.begin(), sample.labels.end());
}

}  // namespace voxconv
