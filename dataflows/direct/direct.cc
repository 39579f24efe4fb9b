// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/direct/direct.h"

#include <string>
#include <utility>

namespace voxconv {
namespace {

DirectWeights WeightsOf(const std::string& text) {
  if (text == "naive") return DirectWeights::kNaive;
  return text == "channel" ? DirectWeights::kChannel : DirectWeights::kCached;
}

}  // namespace

PluginDescription DescribeDirect() {
  PluginDescription description{
      .name = kDirectName,
      .summary = "one dot product an output channel over the row of an offset table",
      .source = "Luo and Lai, Optimization of Sparse Convolution for 3D-Point Cloud on GPUs"};
  description.options.Enum(
      "weights", {"naive", "channel", "cached"}, "cached",
      "read the weights from their array; those of one output channel from shared memory or cache, "
      "with a row of thread blocks a channel, as the paper does; or those of a block of channels");
  return description;
}

Direct::Direct(Options options)
    : options_(std::move(options)), weights_(WeightsOf(options_.GetEnum("weights"))) {}

MapNeed Direct::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kNeighbourTable};
}

}  // namespace voxconv
