// SPDX-License-Identifier: Apache-2.0
#include "voxconv/view/cloud_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::view {
namespace {

// Samples of a batch lie in the same space.
void AddBatch(VoxelSet& set) {
  Colouring batch{.name = "batch sample", .values = {}};
  bool several = false;
  for (const Coordinate& c : set.coords) {
    several = several || c.b != set.coords[0].b;
    batch.values.push_back(static_cast<float>(c.b));
  }
  if (several) set.colourings.push_back(std::move(batch));
}

// Channel `channel` of row-major `features`.
std::vector<float> Column(absl::Span<const float> features, int64_t channels, int64_t channel) {
  std::vector<float> values;
  values.reserve(features.size() / channels);
  for (size_t i = channel; i < features.size(); i += channels) values.push_back(features[i]);
  return values;
}

void AddSummaries(absl::Span<const float> features, int64_t channels, VoxelSet& set) {
  Colouring norm{.name = "norm of the features", .values = {}};
  Colouring largest{.name = "channel with the largest feature", .values = {}};
  for (size_t begin = 0; begin < features.size(); begin += channels) {
    const auto row = features.subspan(begin, channels);
    double squares = 0;
    for (const float value : row) squares += double{value} * value;
    norm.values.push_back(static_cast<float>(std::sqrt(squares)));
    largest.values.push_back(
        static_cast<float>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  set.colourings.push_back(std::move(norm));
  set.colourings.push_back(std::move(largest));
}

}  // namespace

VoxelSet ViewCloud(const std::string& name, const VoxelizedCloud& cloud) {
  VoxelSet set{.name = name,
               .edge = {1, 1, 1},
               .coords = cloud.coords,
               .colourings = {},
               .of = cloud.size()};
  for (int64_t channel = 0; channel < cloud.channels; ++channel) {
    set.colourings.push_back({.name = absl::StrCat("feature ", cloud.names[channel]),
                              .values = Column(cloud.features, cloud.channels, channel)});
  }
  AddBatch(set);
  return set;
}

absl::StatusOr<Colouring> CountNeighbours(const Mapping& mapping,
                                          const CoordinateSetPtr& coordinates,
                                          const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      const ConvGeometry geometry,
      ConvGeometry::Create({.input_tensor_stride = coordinates->tensor_stride()}));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           QueryPairs(mapping, {*coordinates, *coordinates, geometry}, context));
  VOXCONV_ASSIGN_OR_RETURN(const auto rows, CopyToHost(map.pairs().out.array(), context));
  Colouring neighbours{.name = "neighbours within 3x3x3",
                       .values = std::vector<float>(coordinates->size(), 0)};
  for (const int32_t row : rows) {
    if (row < 0 || row >= coordinates->size()) {
      return absl::InternalError(absl::StrCat("the mapping's map has row ", row,
                                              "; allowed are 0 .. ", coordinates->size() - 1));
    }
    ++neighbours.values[row];
  }
  return neighbours;
}

absl::StatusOr<VoxelSet> ViewLayer(const std::string& name, const SparseTensor& output,
                                   absl::Span<const int64_t> channels,
                                   const ExecutionContext& context) {
  if (output.coordinates() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", name,
                     "': its rows are batch samples and no voxels; allowed is a layer before "
                     "the global pooling"));
  }
  const int64_t width = output.features().channels();
  for (const int64_t channel : channels) {
    if (channel >= 0 && channel < width) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("channel ", channel, " of layer '", name, "': allowed are 0 .. ", width - 1));
  }
  VoxelSet set{.name = name,
               .edge = output.tensor_stride(),
               .coords = {},
               .colourings = {},
               .of = output.features().rows()};
  VOXCONV_ASSIGN_OR_RETURN(set.coords, CopyToHost(output.coordinates()->rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> features, output.features().ToHost(context));
  AddSummaries(features, width, set);
  for (const int64_t channel : channels) {
    set.colourings.push_back(
        {.name = absl::StrCat("channel ", channel), .values = Column(features, width, channel)});
  }
  AddBatch(set);
  return set;
}

void Sample(int64_t limit, VoxelSet& set) {
  const int64_t size = set.size();
  if (size <= limit) return;
  for (int64_t i = 0; i < limit; ++i) {
    // Not i * size / limit, which could overflow.
    const auto row = static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(size) /
                                          static_cast<double>(limit));
    set.coords[i] = set.coords[row];
    for (Colouring& colouring : set.colourings) colouring.values[i] = colouring.values[row];
  }
  set.coords.resize(limit);
  for (Colouring& colouring : set.colourings) colouring.values.resize(limit);
}

}  // namespace voxconv::view
