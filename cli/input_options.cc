// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/input_options.h"

#include <algorithm>
#include <initializer_list>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv::cli {

absl::Status CheckRuleOption(const po::variables_map& values, ConvKind kind) {
  if (values["rule"].defaulted() || kind == ConvKind::kStrided || kind == ConvKind::kInverse) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--rule ", values["rule"].as<std::string>(), ": has no meaning with --kind ",
                   values["kind"].as<std::string>(), "; it is for strided and inverse layers"));
}

absl::StatusOr<LayerChannels> ParseLayerChannels(const std::string& text) {
  constexpr int64_t kMost = 65536;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar(",x"));
  LayerChannels channels;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &channels.in) &&
      absl::SimpleAtoi(parts[1], &channels.out) && std::min(channels.in, channels.out) >= 1 &&
      std::max(channels.in, channels.out) <= kMost) {
    return channels;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--channels '", text, "': C_IN,C_OUT or C_INxC_OUT is needed, each 1 .. ", kMost));
}

po::options_description InputOptions() {
  po::options_description options("Input");
  options.add_options()  //
      ("input", po::value<std::string>(),
       "the path of a point cloud or of integer voxel coordinates (.npy, .npz), or "
       "scene:NAME?key=value&...")  //
      ("voxel-size", po::value<std::string>()->default_value("0.05"),
       "edge of a voxel in the cloud's unit; one value, or three for x, y, z")  //
      ("origin", po::value<std::string>()->default_value("0"),
       "corner of voxel (0, 0, 0) in the cloud's unit; one or three values; georeferenced clouds "
       "need one near their points")  //
      ("voxel-rule", po::value<std::string>()->default_value("f64"),
       "how points become voxels: f64, the quotient in double precision and the mean of the "
       "points' features; spconv, SpConv's quotient in float32 and the first point's features")  //
      ("range", po::value<std::string>(), kRangeHelp)                                            //
      ("order", po::value<std::string>()->default_value("scan"), kOrderHelp)                     //
      ("fields", po::value<std::string>()->default_value(""),
       "columns of a raw file, such as x,y,z,intensity; _ skips a column")  //
      ("dtype-in", po::value<std::string>()->default_value(""),
       "number type of a raw file: f16, f32 or f64")  //
      ("array", po::value<std::string>()->default_value(""),
       "name of the array of an .npz file; default: points, or else the first array")  //
      ("npz-limit-mib", po::value<int64_t>()->default_value(256), kNpzLimitHelp)       //
      ("samples", po::value<int64_t>()->default_value(100000),
       "number of points that are drawn on a mesh")                                     //
      ("unit-sphere", po::bool_switch(), "scale the cloud into the unit sphere first")  //
      ("input-seed", po::value<uint64_t>()->default_value(0),
       "seed of the points that are drawn on a mesh, and of --order shuffled");
  return options;
}

absl::StatusOr<LoadOptions> ParseLoadOptions(const po::variables_map& values) {
  LoadOptions options;
  constexpr int64_t kMostSamples = int64_t{1} << 32;
  if (const int64_t samples = values["samples"].as<int64_t>();
      samples < 1 || samples > kMostSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("--samples ", samples, ": allowed are 1 .. ", kMostSamples));
  }
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.size,
                           ParseDouble3("--voxel-size", values["voxel-size"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.origin,
                           ParseDouble3("--origin", values["origin"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.rule,
                           ParseVoxelRule(values["voxel-rule"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.order, ParseOrderOption(values));
  options.voxelize.order_seed = values["input-seed"].as<uint64_t>();
  if (values.count("range") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(options.range,
                             ParseRange("--range", values["range"].as<std::string>()));
  }
  VOXCONV_ASSIGN_OR_RETURN(const NpzOptions npz, ParseNpzLimit(values));
  options.read.npz_limit_mib = npz.max_bytes >> 20;
  options.read.fields = values["fields"].as<std::string>();
  options.read.dtype_in = values["dtype-in"].as<std::string>();
  options.read.array = values["array"].as<std::string>();
  options.read.samples = values["samples"].as<int64_t>();
  options.read.seed = values["input-seed"].as<uint64_t>();
  options.read.into_unit_sphere = values["unit-sphere"].as<bool>();
  return options;
}

absl::StatusOr<RowOrder> ParseOrderOption(const po::variables_map& values) {
  const absl::StatusOr<RowOrder> order = ParseRowOrder(values["order"].as<std::string>());
  if (order.ok()) return order;
  return absl::InvalidArgumentError(absl::StrCat("--", order.status().message()));
}

absl::StatusOr<NpzOptions> ParseNpzLimit(const po::variables_map& values) {
  constexpr int64_t kMostMib = int64_t{1} << 40;
  const int64_t mib = values["npz-limit-mib"].as<int64_t>();
  if (mib >= 1 && mib <= kMostMib) return NpzOptions{.max_bytes = mib << 20};
  return absl::InvalidArgumentError(
      absl::StrCat("--npz-limit-mib ", mib, ": allowed are 1 .. ", kMostMib));
}

void PrintChannels(const VoxelizedCloud& cloud, int64_t channels, std::ostream& say) {
  const std::string text = DescribeChannels(cloud, channels);
  if (!text.empty()) say << text << "\n";
}

void PrintCounts(const VoxelizedCloud& cloud) {
  std::cout << "points: " << cloud.points << ", dropped (NaN or Inf): " << cloud.dropped;
  if (cloud.cropped > 0) std::cout << ", outside the range: " << cloud.cropped;
  int32_t batches = 0;
  for (const Coordinate& coordinate : cloud.coords) batches = std::max(batches, coordinate.b + 1);
  std::cout << "\nvoxels: " << cloud.size() << ", batch samples: " << batches
            << ", order: " << ToString(cloud.order) << "\n";
}

absl::StatusOr<VoxelizedCloud> LoadInput(const po::variables_map& values) {
  if (values.count("input") == 0) {
    return absl::InvalidArgumentError("--input is missing: a point cloud's path or scene:NAME");
  }
  VOXCONV_ASSIGN_OR_RETURN(const LoadOptions options, ParseLoadOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(VoxelizedCloud cloud,
                           voxconv::LoadInput(values["input"].as<std::string>(), options));
  const auto refuse = [&](bool applies, std::initializer_list<const char*> names,
                          const char* why) -> absl::Status {
    for (const char* name : names) {
      if (applies || values[name].defaulted()) continue;
      return absl::InvalidArgumentError(absl::StrCat("--", name, " has no meaning for ",
                                                     values["input"].as<std::string>(), ", ", why));
    }
    return absl::OkStatus();
  };
  VOXCONV_RETURN_IF_ERROR(refuse(!cloud.from_voxels, {"voxel-size", "voxel-rule", "origin"},
                                 "which holds voxels already"));
  VOXCONV_RETURN_IF_ERROR(
      refuse(cloud.from_mesh, {"samples"}, "which is no mesh to draw points on"));
  VOXCONV_RETURN_IF_ERROR(
      refuse(cloud.from_mesh || cloud.order == RowOrder::kShuffled, {"input-seed"},
             "which is no mesh to draw points on, and whose rows are not shuffled"));
  return cloud;
}

}  // namespace voxconv::cli
