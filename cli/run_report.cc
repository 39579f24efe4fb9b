// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/run_report.h"

#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/measure/input_class.h"
#include "voxconv/measure/network_frame.h"

namespace voxconv::cli {
namespace {

using Table = std::vector<std::vector<std::string>>;

std::string Ms(double ms) { return ms == 0 ? "-" : absl::StrFormat("%.3f", ms); }

// Stages that the run visited, in order.
std::vector<Stage> VisitedStages(const Profile& total) {
  std::vector<Stage> stages;
  for (int i = 0; i < kNumStages; ++i) {
    if (total.visits[i] > 0) stages.push_back(static_cast<Stage>(i));
  }
  return stages;
}

}  // namespace

void PrintLayerTable(const RunReport& report, bool verbose) {
  const std::vector<Stage> stages = VisitedStages(report.total);
  Table table = {{"layer", "op", "geometry", "channels", "voxels", "pairs", "map"}};
  if (verbose) table[0].insert(table[0].end(), {"dataflow", "kernel"});
  for (Stage stage : stages) table[0].push_back(absl::StrCat(ToString(stage), " ms"));
  for (const LayerReport& layer : report.layers) {
    const bool fused = !layer.fused_into.empty();
    std::vector<std::string> row = {
        layer.name,
        fused ? absl::StrCat(layer.op, " (fused)") : layer.op,
        fused ? absl::StrCat("in ", layer.fused_into) : layer.geometry,
        absl::StrCat(layer.c_in, "->", layer.c_out),
        absl::StrCat(layer.n_in, "->", layer.n_out),
        layer.pairs > 0 ? absl::StrCat(layer.pairs) : "",
        layer.map_origin == MapOrigin::kNone ? "" : ToString(layer.map_origin)};
    if (verbose) row.insert(row.end(), {layer.dataflow, layer.kernel});
    for (Stage stage : stages) row.push_back(Ms(layer.profile.Time(stage)));
    table.push_back(std::move(row));
  }
  std::vector<std::string> sum = {"sum"};
  sum.resize(verbose ? 9 : 7);
  for (Stage stage : stages) sum.push_back(Ms(report.total.Time(stage)));
  table.push_back(std::move(sum));
  std::cout << FormatTable(table);
}

// The stages that cost most, and what else the run held and counted.
void PrintTotals(const RunReport& report, const Start& start, const Frames& frames,
                 Backend& backend) {
  std::vector<Stage> stages = VisitedStages(report.total);
  std::sort(stages.begin(), stages.end(),
            [&](Stage a, Stage b) { return report.total.Time(a) > report.total.Time(b); });
  std::cout << absl::StrFormat("%s: %.2f ms; stages: %.2f ms; costliest:", frames.wall_name(),
                               frames.wall_ms, report.total.Total());
  for (size_t i = 0; i < std::min<size_t>(3, stages.size()); ++i) {
    std::cout << absl::StrFormat(" %s %.2f ms (%.0f %%)", ToString(stages[i]),
                                 report.total.Time(stages[i]),
                                 100 * report.total.Time(stages[i]) / report.total.Total());
  }
  std::cout << absl::StrFormat("\nstart: backend %.0f ms, network %.0f ms", start.backend_ms,
                               start.network_ms);
  if (start.first_frame_ms.has_value()) {
    std::cout << absl::StrFormat(", first frame %.1f ms", *start.first_frame_ms);
  }
  if (frames.count > 0 && backend.kind() == BackendKind::kCuda) {
    std::cout << absl::StrFormat(
        "\na frame made the host wait at most %d times before the wait for its results",
        frames.synchronisations);
  }
  if (frames.replayed_ms > 0) {
    std::cout << absl::StrFormat(
        "\nreplayed as a CUDA graph: %.2f ms (queued in %.2f ms), %.2f times as fast",
        frames.replayed_ms, frames.replay_queued_ms, frames.wall_ms / frames.replayed_ms);
  }
  constexpr double kMib = 1 << 20;
  std::cout << absl::StrFormat(
      "\nmaps: %d queried, %d transposed, %d converted; indices built: %d\n", report.maps_queried,
      report.maps_transposed, report.maps_converted, report.indices_built);
  std::cout << absl::StrFormat(
      "peak MiB: features %.1f, maps %.1f, workspace %.1f, parameters %.1f",
      static_cast<double>(report.peak_feature_bytes) / kMib,
      static_cast<double>(report.peak_map_bytes) / kMib,
      static_cast<double>(report.total.counters.peak_workspace) / kMib,
      static_cast<double>(report.parameter_bytes) / kMib);
  if (auto* cpu = dynamic_cast<CpuBackend*>(&backend)) {
    std::cout << absl::StrFormat("; all of the backend %.1f",
                                 static_cast<double>(cpu->PeakBytes()) / kMib);
  }
  std::cout << "\n";
}

void PrintMapSizes(const RunReport& report) {
  for (const LayerReport& layer : report.layers) {
    if (layer.map_origin != MapOrigin::kQueried && layer.map_origin != MapOrigin::kTransposed)
      continue;
    std::cout << "map sizes of " << layer.name << ": " << absl::StrJoin(layer.map_sizes, " ")
              << "\n";
  }
}

namespace {

measure::Json TimedLayerJson(const LayerReport& layer) {
  measure::Json stages = measure::Json::object();
  for (Stage stage : VisitedStages(layer.profile)) {
    stages[std::string(ToString(stage))] = layer.profile.Time(stage);
  }
  measure::Json json = measure::LayerJson(layer);
  json["stages_ms"] = std::move(stages);
  return json;
}

}  // namespace

measure::Json ResultJson(const po::variables_map& values, const measure::Configuration& config,
                         const VoxelizedCloud& cloud, const RunReport& report, const Start& start,
                         const Frames& frames, const Backend& backend) {
  measure::Json layers = measure::Json::array();
  for (const LayerReport& layer : report.layers) layers.push_back(TimedLayerJson(layer));
  // As given: BuildNetwork has read it.
  const measure::Json grid =
      values.count("grid") == 0 ? measure::Json() : measure::Json(values["grid"].as<std::string>());
  return {
      {"kind", "run"},
      {"network", values["network"].as<std::string>()},
      {"width", values["width"].as<double>()},
      {"grid", grid},
      {"seed", values["seed"].as<uint64_t>()},
      {"input", values["input"].as<std::string>()},
      {"input_hash", measure::HashInput(cloud.coords, cloud.features)},
      {"order", std::string(ToString(cloud.order))},
      {"voxels", cloud.size()},
      {"configuration", measure::ToJson(config)},
      {"dtype", values["dtype"].as<std::string>()},
      {"fold_batch_norm", values["fold-batch-norm"].as<bool>()},
      {"start",
       {{"backend_ms", start.backend_ms},
        {"network_ms", start.network_ms},
        {"first_frame_ms", start.first_frame_ms.has_value() ? measure::Json(*start.first_frame_ms)
                                                            : measure::Json()}}},
      {"wall_ms", frames.wall_ms},
      {"frames", frames.count},
      {"queued_ms", frames.queued_ms},
      {"synchronisations",
       frames.count == 0 ? measure::Json() : measure::Json(frames.synchronisations)},
      {"keep_maps", values["keep-maps"].as<bool>()},
      {"reorder", values["reorder"].as<bool>()},
      {"replayed_ms", frames.replayed_ms},
      {"replay_queued_ms", frames.replay_queued_ms},
      {"layers", layers},
      {"counters", measure::ToJson(report.total.counters)},
      {"provenance", measure::DescribeProvenance(backend)}};
}

double PeakRate(const Backend& backend) {
  constexpr double kCpuPeak = 1.5e11, kCudaPeak = 1e15;
  return backend.kind() == BackendKind::kCpu
             ? kCpuPeak * std::max(1u, std::thread::hardware_concurrency())
             : kCudaPeak;
}

std::string HowLong(const NetworkGraph& graph, const VoxelizedCloud& cloud, double rate) {
  constexpr double kLong = 60;
  double products = 0;  // channels, of layers with a kernel of 3
  for (const int id : graph.Convolutions(/*with_shortcuts=*/false)) {
    const Node& node = graph.node(id);
    if (node.coordinates != graph.node(0).coordinates ||
        node.geometry.kind != ConvKind::kSubmanifold || node.geometry.kernel != Int3{3, 3, 3}) {
      continue;
    }
    products += static_cast<double>(graph.InputChannels(node)) * static_cast<double>(node.channels);
  }
  if (27 * products * static_cast<double>(cloud.size()) < kLong * rate) return "";
  const measure::InputDensity density = measure::MeasureDensity(cloud.coords);
  const double work =
      products * static_cast<double>(density.voxels) * static_cast<double>(density.neighbours);
  if (work < kLong * rate) return "";
  return absl::StrFormat(
      "one run takes more than %s: its layers at full resolution have %.2g multiply-adds\n",
      absl::FormatDuration(absl::Seconds(static_cast<int64_t>(work / rate))), work);
}

}  // namespace voxconv::cli
