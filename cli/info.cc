// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/convolution.h"
#include "voxconv/io/kernel_map_file.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::cli {
namespace {

void PrintHistogram(const std::vector<int64_t>& histogram, int64_t rows) {
  std::cout << "neighbours within 3x3x3, with the voxel itself:\n";
  int64_t pairs = 0;
  for (size_t n = 0; n < histogram.size(); ++n) {
    pairs += static_cast<int64_t>(n) * histogram[n];
    if (histogram[n] == 0) continue;
    const double share = static_cast<double>(histogram[n]) / static_cast<double>(rows);
    const std::string bar(std::lround(50 * share), '#');
    std::cout << absl::StrFormat("  %2d %9d %5.1f %%%s%s\n", n, histogram[n], 100 * share,
                                 bar.empty() ? "" : " ", bar);
  }
  std::cout << absl::StrFormat(
      "pairs: %d, %.3f a voxel\n", pairs,
      rows == 0 ? 0.0 : static_cast<double>(pairs) / static_cast<double>(rows));
}

// How many output rows have so many pairs, by the number of pairs. `map` holds pairs.
absl::StatusOr<std::vector<int64_t>> NeighbourHistogram(const KernelMap& map,
                                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto out, CopyToHost(map.pairs().out.array(), context));
  std::vector<int32_t> count(map.num_outputs(), 0);
  for (int32_t row : out) ++count[row];
  std::vector<int64_t> histogram(map.num_offsets() + 1, 0);
  for (int32_t n : count) ++histogram[n];
  return histogram;
}

std::vector<int64_t> PairsPerOffset(const KernelMap& map) {
  std::vector<int64_t> sizes;
  sizes.reserve(map.num_offsets());
  for (int k = 0; k < map.num_offsets(); ++k) sizes.push_back(map.num_pairs(k));
  return sizes;
}

void PrintOffsets(const std::vector<int64_t>& sizes) {
  std::cout << Wrapped("pairs per kernel offset: ", absl::StrJoin(sizes, " "), 2);
}

// Prints it and gives it as JSON.
absl::StatusOr<measure::Json> PrintCloud(const VoxelizedCloud& cloud, const Mapping& mapping,
                                         Session& session) {
  const ExecutionContext context = session.Context();
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set, MakeCoordinates(cloud, context));
  PrintCounts(cloud);
  std::cout << "features: " << (cloud.names.empty() ? "none" : absl::StrJoin(cloud.names, ", "))
            << "\n";
  const Box& bounds = set->bounds();
  double cells = set->num_batches();
  for (int axis = 0; axis < 3; ++axis) cells *= bounds.hi[axis] - int64_t{bounds.lo[axis]} + 1;
  const double density = cells == 0 ? 0.0 : static_cast<double>(set->size()) / cells;
  std::cout << absl::StrFormat("bounds: (%d, %d, %d) .. (%d, %d, %d)\n", bounds.lo.x, bounds.lo.y,
                               bounds.lo.z, bounds.hi.x, bounds.hi.y, bounds.hi.z)
            << absl::StrFormat("density: %.3g of %.4g cells\n", density, cells);

  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometry::Create({}));
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, QueryPairs(mapping, {*set, *set, geometry}, context));
  VOXCONV_ASSIGN_OR_RETURN(const auto histogram, NeighbourHistogram(map, context));
  PrintHistogram(histogram, set->size());
  PrintOffsets(PairsPerOffset(map));
  return measure::Json{
      {"kind", "info"},
      {"points", cloud.points},
      {"dropped", cloud.dropped},
      {"cropped", cloud.cropped},
      {"voxels", set->size()},
      {"order", std::string(ToString(cloud.order))},
      {"batches", set->num_batches()},
      {"features", cloud.names},
      {"bounds", {bounds.lo.x, bounds.lo.y, bounds.lo.z, bounds.hi.x, bounds.hi.y, bounds.hi.z}},
      {"cells", cells},
      {"density", density},
      {"voxels_by_neighbours", histogram},
      {"pairs", map.num_pairs()},
      {"pairs_per_offset", PairsPerOffset(map)},
      {"input_hash", measure::HashInput(cloud.coords, cloud.features)}};
}

absl::StatusOr<measure::Json> PrintMap(const std::string& path, const NpzOptions& options,
                                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const SavedKernelMap saved, ReadKernelMap(path, context, options));
  std::cout << "kernel map: " << saved.geometry.ToString() << "\n"
            << "inputs: " << saved.inputs->size() << ", outputs: " << saved.outputs->size() << "\n"
            << "kernel offsets: " << saved.map.num_offsets() << ", pairs: " << saved.map.num_pairs()
            << "\n";
  PrintOffsets(PairsPerOffset(saved.map));
  return measure::Json{
      {"kind", "kernel_map"},           {"geometry", saved.geometry.ToString()},
      {"inputs", saved.inputs->size()}, {"outputs", saved.outputs->size()},
      {"pairs", saved.map.num_pairs()}, {"pairs_per_offset", PairsPerOffset(saved.map)}};
}

// A map has its voxels and pairs; nothing is read or looked for.
absl::Status CheckMapOptions(const po::variables_map& values) {
  const po::options_description input = InputOptions();
  for (const auto& option : input.options()) {
    const std::string& name = option->long_name();
    if (name == "input" || name == "npz-limit-mib" || values.count(name) == 0 ||
        values[name].defaulted()) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " has no meaning for a saved kernel map"));
  }
  if (values["mapping"].defaulted()) return absl::OkStatus();
  return absl::InvalidArgumentError("--mapping has no meaning for a saved kernel map");
}

}  // namespace

absl::Status RunInfo(const std::vector<std::string>& args) {
  po::options_description options = InputOptions();
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  options.add_options()("mapping",
                        po::value<std::string>()->default_value(defaults.single_layer.mapping),
                        "spec of the mapping that finds the neighbours");
  options.add(JsonOption()).add(SessionOptions());
  po::positional_options_description positional;
  positional.add("input", 1);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("info FILE|scene:NAME|MAP.npz [OPTIONS]", options, positional, args));
  StandardOutput output(values);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  VOXCONV_ASSIGN_OR_RETURN(const NpzOptions npz, ParseNpzLimit(values));
  measure::Json result;
  if (values.count("input") != 0 && IsKernelMapFile(values["input"].as<std::string>(), npz)) {
    VOXCONV_RETURN_IF_ERROR(CheckMapOptions(values));
    VOXCONV_ASSIGN_OR_RETURN(result,
                             PrintMap(values["input"].as<std::string>(), npz, session->Context()));
  } else {
    VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                             session->registry().mappings().Create(
                                 values["mapping"].as<std::string>(), session->backend().kind()));
    VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInput(values));
    VOXCONV_ASSIGN_OR_RETURN(result, PrintCloud(cloud, *mapping, *session));
    result["input"] = values["input"].as<std::string>();
  }
  return output.WriteResult(values, result);
}

}  // namespace voxconv::cli
