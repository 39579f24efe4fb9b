// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/fetch_on_demand/fetch_on_demand.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

FgmsFusion FusionOf(const Options& options) {
  const std::string& fusion = options.GetEnum("fusion");
  if (fusion == "separate") return FgmsFusion::kSeparate;
  if (fusion == "batched") return FgmsFusion::kBatched;
  return FgmsFusion::kSegmented;
}

CopyRule CopiesOf(const Options& options) {
  const std::string& copies = options.GetEnum("copies");
  if (copies == "never") return CopyRule::kNever;
  if (copies == "minkowski") return CopyRule::kMinkowski;
  return CopyRule::kAlways;
}

}  // namespace

PluginDescription DescribeFetchOnDemand() {
  PluginDescription description{
      .name = kFetchOnDemandName,
      .summary = "gather, matmul and scatter fused, straight from the pair list",
      .source = "MinkowskiEngine 0.5.4; fusion of the offsets: PCEngine (MLSys 2023), Section 5",
      .extra_variants = {"tile=16", "fusion=batched,tile=16"}};
  description.options
      .Enum("fusion", {"separate", "batched", "segmented"}, "segmented",
            "offsets a launch: one, similar ones padded to the largest, or all without padding")
      .Enum("input_grad", {"separate", "atomic"}, "separate",
            "CUDA: launches of input gradients: one for each offset, with the same bits in every "
            "run, or those of fusion, whose atomic additions are faster and come in any order")
      .Enum("copies", {"never", "minkowski", "always"}, "never",
            "layers that copy the rows of an offset, multiply the copy and add the product: none, "
            "those of MinkowskiEngine's rule by channels and input rows, or all")
      .Enum(
          "mma", {"auto", "6xbf16"}, "auto",
          "CPU: products in f32: multiply-adds; 6xbf16: with AMX, from 65 output channels on where "
          "input channels are a multiple of 32, six products of bf16 in place of one, within the "
          "same bound on the error, and else multiply-adds")
      .Int("tile", 2048, 16, 1 << 20, "CPU: output rows that one task computes, at most");
  return description;
}

absl::Status CheckFetchOnDemandOptions(const Options& options) {
  const std::string& copies = options.GetEnum("copies");
  const std::string& fusion = options.GetEnum("fusion");
  const std::string& mma = options.GetEnum("mma");
  if (copies != "never" && fusion != "separate") {
    return absl::InvalidArgumentError(absl::StrCat(kFetchOnDemandName, ": copies=", copies,
                                                   ": needs fusion=separate, not fusion=", fusion,
                                                   "; layers that copy multiply offset by offset"));
  }
  if (mma != "auto" && fusion != "segmented") {
    return absl::InvalidArgumentError(absl::StrCat(kFetchOnDemandName, ": mma=", mma,
                                                   ": needs fusion=segmented, not fusion=", fusion,
                                                   "; such products take all offsets at once"));
  }
  return absl::OkStatus();
}

FetchOnDemand::FetchOnDemand(Options options)
    : options_(std::move(options)), fusion_(FusionOf(options_)), copies_(CopiesOf(options_)) {}

FetchOnDemand::FetchOnDemand(Options options, FgmsFusion fusion)
    : options_(std::move(options)), fusion_(fusion), copies_(CopiesOf(options_)) {}

MapNeed FetchOnDemand::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kPairs};
}

}  // namespace voxconv
