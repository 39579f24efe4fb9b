// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/direct/direct.h"

#include <utility>

namespace voxconv {

PluginDescription DescribeDirect() {
  PluginDescription description{
      .name = kDirectName,
      .summary = "one dot product an output channel over the row of an offset table",
      .source = "Luo and Lai, Optimization of Sparse Convolution for 3D-Point Cloud on GPUs"};
  description.options.Enum(
      "weights", {"naive", "cached"}, "cached",
      "read the weights from their array, or from blocks in shared memory or cache");
  return description;
}

Direct::Direct(Options options)
    : options_(std::move(options)),
      weights_(options_.GetEnum("weights") == "cached" ? DirectWeights::kCached
                                                       : DirectWeights::kNaive) {}

MapNeed Direct::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kNeighbourTable};
}

}  // namespace voxconv
