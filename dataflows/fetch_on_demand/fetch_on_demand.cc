// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/fetch_on_demand/fetch_on_demand.h"

#include <string>
#include <utility>

namespace voxconv {
namespace {

FgmsFusion FusionOf(const Options& options) {
  const std::string& fusion = options.GetEnum("fusion");
  if (fusion == "separate") return FgmsFusion::kSeparate;
  if (fusion == "batched") return FgmsFusion::kBatched;
  return FgmsFusion::kSegmented;
}

}  // namespace

PluginDescription DescribeFetchOnDemand() {
  PluginDescription description{
      .name = kFetchOnDemandName,
      .summary = "gather, matmul and scatter fused, straight from the pair list",
      .source = "MinkowskiEngine; fusion of the offsets: PCEngine (MLSys 2023), Section 5",
      .extra_variants = {"tile=16", "fusion=batched,tile=16"}};
  description.options
      .Enum("fusion", {"separate", "batched", "segmented"}, "segmented",
            "offsets a launch: one, similar ones padded to the largest, or all without padding")
      .Int("tile", 512, 16, 1 << 20, "CPU: output rows that one task computes at a time");
  return description;
}

FetchOnDemand::FetchOnDemand(Options options)
    : options_(std::move(options)), fusion_(FusionOf(options_)) {}

MapNeed FetchOnDemand::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kPairs};
}

}  // namespace voxconv
