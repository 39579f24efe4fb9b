// SPDX-License-Identifier: Apache-2.0
// voxconv run: a network on a point cloud.
#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/plan_option.h"
#include "voxconv/core/parse.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/input_class.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"

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

void PrintLayerTable(const RunReport& report) {
  const std::vector<Stage> stages = VisitedStages(report.total);
  Table table = {{"layer", "op", "geometry", "channels", "voxels", "pairs", "map"}};
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
    for (Stage stage : stages) row.push_back(Ms(layer.profile.Time(stage)));
    table.push_back(std::move(row));
  }
  std::vector<std::string> sum = {"sum", "", "", "", "", "", ""};
  for (Stage stage : stages) sum.push_back(Ms(report.total.Time(stage)));
  table.push_back(std::move(sum));
  std::cout << FormatTable(table);
}

// How long the network took: the run that the stages are of, or the medians of more that were not
// profiled.
struct Frames {
  int count = 0;
  double wall_ms = 0;
  double queued_ms = 0;    // how long the host was busy queueing
  double replayed_ms = 0;  // wall time of replays of a CUDA graph; 0: there were none
  double replay_queued_ms = 0;
  int64_t synchronisations = 0;  // most of one frame, without the one that its time ends with

  std::string wall_name() const {
    if (count == 0) return "wall time";
    return absl::StrFormat("median wall time of %d frames without stage times (queued in %.2f ms)",
                           count, queued_ms);
  }
};

// The stages that cost most, and what else the run held and counted.
void PrintTotals(const RunReport& report, const Frames& frames, Backend& backend) {
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
    std::cout << absl::StrFormat("; backend in total %.1f",
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

measure::Json TimedLayerJson(const LayerReport& layer) {
  measure::Json stages = measure::Json::object();
  for (Stage stage : VisitedStages(layer.profile)) {
    stages[std::string(ToString(stage))] = layer.profile.Time(stage);
  }
  measure::Json json = measure::LayerJson(layer);
  json["stages_ms"] = std::move(stages);
  return json;
}

measure::Json ResultJson(const po::variables_map& values, const measure::Configuration& config,
                         const VoxelizedCloud& cloud, const RunReport& report, const Frames& frames,
                         const Backend& backend) {
  measure::Json layers = measure::Json::array();
  for (const LayerReport& layer : report.layers) layers.push_back(TimedLayerJson(layer));
  return {{"kind", "run"},
          {"network", values["network"].as<std::string>()},
          {"width", values["width"].as<double>()},
          {"seed", values["seed"].as<uint64_t>()},
          {"input", values["input"].as<std::string>()},
          {"input_hash", measure::HashInput(cloud.coords, cloud.features)},
          {"voxels", cloud.size()},
          {"configuration", measure::ToJson(config)},
          {"dtype", values["dtype"].as<std::string>()},
          {"fold_batch_norm", values["fold-batch-norm"].as<bool>()},
          {"wall_ms", frames.wall_ms},
          {"frames", frames.count},
          {"queued_ms", frames.queued_ms},
          {"synchronisations",
           frames.count == 0 ? measure::Json() : measure::Json(frames.synchronisations)},
          {"keep_maps", values["keep-maps"].as<bool>()},
          {"replayed_ms", frames.replayed_ms},
          {"replay_queued_ms", frames.replay_queued_ms},
          {"layers", layers},
          {"counters", measure::ToJson(report.total.counters)},
          {"provenance", measure::DescribeProvenance(backend)}};
}

// --plan, or --preset, or --mapping, --dataflow and --output-coords together.
absl::StatusOr<measure::Configuration> ParseConfiguration(const po::variables_map& values,
                                                          const measure::Defaults& defaults,
                                                          const VoxelizedCloud& cloud,
                                                          Precision precision, Session& session) {
  const Registry& registry = session.registry();
  for (const char* whole : {"plan", "preset"}) {
    if (values.count(whole) == 0) continue;
    for (const char* name : {"preset", "mapping", "dataflow", "output-coords"}) {
      if (name == absl::string_view(whole) || values.count(name) == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, ": has no meaning together with --", whole, ", which names one already"));
    }
  }
  if (values.count("plan") != 0) {
    return LoadPlan(values["plan"].as<std::string>(),
                    {.network = values["network"].as<std::string>(),
                     .width = values["width"].as<double>(),
                     .precision = precision,
                     .cloud = cloud,
                     .backend = session.backend()},
                    registry);
  }
  if (values.count("preset") != 0) {
    return measure::ResolveConfig(values["preset"].as<std::string>(), registry);
  }
  measure::Configuration configuration;
  VOXCONV_ASSIGN_OR_RETURN(configuration.choice, defaults.LayersOn(session.backend().kind()));
  for (const auto& [name, spec] :
       {std::pair("mapping", &configuration.choice.mapping),
        std::pair("dataflow", &configuration.choice.dataflow),
        std::pair("output-coords", &configuration.choice.output_coords)}) {
    if (values.count(name) != 0) *spec = values[name].as<std::string>();
  }
  return measure::Resolve(configuration, registry);
}

absl::Status CheckChannels(const po::variables_map& values, const char* name) {
  constexpr int64_t kMaxChannels = 65536;
  const int64_t value = values[name].as<int64_t>();
  if (value >= 0 && value <= kMaxChannels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", value, ": allowed are 0 .. ", kMaxChannels));
}

absl::StatusOr<NetworkGraph> BuildGraph(const po::variables_map& values) {
  VOXCONV_RETURN_IF_ERROR(CheckChannels(values, "in-channels"));
  VOXCONV_RETURN_IF_ERROR(CheckChannels(values, "classes"));
  if (!values["classes"].defaulted() && values["network"].as<std::string>() != "minkunet42") {
    return absl::InvalidArgumentError("--classes: only minkunet42 has a segmentation head");
  }
  std::optional<Box> grid;
  if (values.count("grid") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(grid, ParseBox("--grid", values["grid"].as<std::string>()));
  }
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph,
                           MakeModel(values["network"].as<std::string>(),
                                     {.width = values["width"].as<double>(),
                                      .in_channels = values["in-channels"].as<int64_t>(),
                                      .classes = values["classes"].as<int64_t>(),
                                      .grid = grid}));
  InitializeParameters(graph, values["seed"].as<uint64_t>());
  return graph;
}

po::options_description RunNetworkOptions() {
  po::options_description options("Network");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value("minkunet42"),
       absl::StrCat("the network: ", absl::StrJoin(ModelNames(), ", ")).c_str())  //
      ("width", po::value<double>()->default_value(1.0),
       "factor on every channel count; all counts must stay whole numbers")  //
      ("in-channels", po::value<int64_t>()->default_value(0),
       "input channels; 0: the network's usual number")  //
      ("classes", po::value<int64_t>()->default_value(19),
       "classes of minkunet42's head; 0: no head")  //
      ("grid", po::value<std::string>(),
       "voxels of centerpoint's grid as six values, the least x, y, z and the greatest x, y, z, "
       "such "
       "as 0,0,0,1439,1439,40: strided layers drop outputs outside, as SpConv does; without it "
       "they "
       "keep all")                                                                 //
      ("seed", po::value<uint64_t>()->default_value(1), "seed of the parameters")  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16")  //
      ("fold-batch-norm", po::bool_switch(), "fold batch norm into the convolutions");
  return options;
}

absl::StatusOr<po::options_description> ConfigurationOptions(const measure::Defaults& defaults) {
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice cpu, defaults.LayersOn(BackendKind::kCpu));
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice cuda, defaults.LayersOn(BackendKind::kCuda));
  const auto spec_of = [](const char* what, const std::string& on_cpu, const std::string& on_cuda) {
    return absl::StrCat("spec of the ", what, "; default on the CPU ", on_cpu, ", on CUDA ",
                        on_cuda);
  };
  po::options_description options("Configuration");
  options.add_options()  //
      ("preset", po::value<std::string>(),
       "a preset, or MAPPING/DATAFLOW[/OUTPUT_COORDS]; replaces the three options below")  //
      ("plan", po::value<std::string>(),
       "a plan file of `tune`; replaces --preset and the three options below")  //
      ("mapping", po::value<std::string>(),
       spec_of("mapping", cpu.mapping, cuda.mapping).c_str())  //
      ("dataflow", po::value<std::string>(),
       spec_of("dataflow", cpu.dataflow, cuda.dataflow).c_str())  //
      ("output-coords", po::value<std::string>(),
       spec_of("output coordinates", cpu.output_coords, cuda.output_coords).c_str())  //
      ("serial-maps", po::bool_switch(),
       "CUDA: frames build each map when its first layer needs it; without this option they build "
       "maps ahead of their layers on further streams")  //
      ("keep-maps", po::bool_switch(),
       "later runs, the reported run and the frames use the maps of the first run; coordinates and "
       "maps then take no time")  //
      ("graph", po::bool_switch(),
       "CUDA: also replay the frames as a CUDA graph and compare; needs --keep-maps")  //
      ("frames", po::value<int>(),
       "number of frames that are timed as a whole, without stage times; default on the CPU 0, on "
       "CUDA 20")                                                                                 //
      ("warmup", po::value<int>()->default_value(1), "runs before the reported run")              //
      ("map-sizes", po::bool_switch(), "also print the pairs per kernel offset of each new map")  //
      ("out", po::value<std::string>(), "append the result to this file as one JSON line");
  return options;
}

absl::StatusOr<int> ParseFrames(const po::variables_map& values, BackendKind backend) {
  if (values.count("frames") == 0) return backend == BackendKind::kCuda ? 20 : 0;
  constexpr int kMaxFrames = 1000000;
  const int frames = values["frames"].as<int>();
  if (frames >= 0 && frames <= kMaxFrames) return frames;
  return absl::InvalidArgumentError(
      absl::StrCat("--frames ", frames, ": allowed are 0 .. ", kMaxFrames));
}

// The stage times of one profiled run, and what takes a wait for the device from one before it: the
// pairs of maps and what dataflows count by them.
absl::StatusOr<measure::FrameTime> RunProfiled(NetworkRunner& runner, const SparseTensorView& input,
                                               const ExecutionContext& context, RunResult& result) {
  if (!context.backend->asynchronous()) {
    return measure::TimeFrame(runner, input, context, result);
  }
  VOXCONV_ASSIGN_OR_RETURN(const RunResult counted, runner.Run(input));
  runner.set_count_pairs(false);
  VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time,
                           measure::TimeFrame(runner, input, context, result));
  for (size_t i = 0; i < result.report.layers.size(); ++i) {
    const LayerReport& from = counted.report.layers[i];
    LayerReport& to = result.report.layers[i];
    to.pairs = from.pairs;
    to.map_sizes = from.map_sizes;
    to.profile.counters = from.profile.counters;
  }
  result.report.total.counters = counted.report.total.counters;
  return time;
}

// Without stage times, after a frame to warm up.
absl::StatusOr<Frames> TimeFrames(NetworkRunner& runner, const SparseTensorView& input,
                                  const ExecutionContext& context, int count) {
  runner.set_profile_stages(false);
  std::vector<double> wall, queued;
  RunResult result;
  Frames frames{.count = count};
  for (int i = 0; i <= count; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time,
                             measure::TimeFrame(runner, input, context, result));
    if (i == 0) continue;
    wall.push_back(time.wall_ms);
    queued.push_back(time.queued_ms);
    frames.synchronisations = std::max(frames.synchronisations, time.synchronisations);
  }
  frames.wall_ms = measure::Quantile(wall, 0.5);
  frames.queued_ms = measure::Quantile(queued, 0.5);
  return frames;
}

// What can be said before anything runs.
absl::Status CheckCudaOptions(const po::variables_map& values, BackendKind backend,
                              int num_frames) {
  if (values["serial-maps"].as<bool>() && backend != BackendKind::kCuda) {
    return absl::InvalidArgumentError(
        "--serial-maps: only --backend cuda builds maps ahead of their layers");
  }
  if (!values["graph"].as<bool>()) return absl::OkStatus();
  if (backend != BackendKind::kCuda) {
    return absl::InvalidArgumentError("--graph: only --backend cuda has graphs");
  }
  if (!values["keep-maps"].as<bool>()) {
    return absl::InvalidArgumentError(
        "--graph: --keep-maps is needed; a frame that builds its maps learns their sizes while it "
        "runs and cannot be replayed");
  }
  if (num_frames == 0) {
    return absl::InvalidArgumentError(
        "--graph: --frames 0 leaves no frame to compare the graph with");
  }
  return absl::OkStatus();
}

// Once the first replay has given what a run gives.
absl::Status TimeReplays(NetworkRunner& runner, const SparseTensorView& input,
                         const ExecutionContext& context, Frames& frames) {
  VOXCONV_ASSIGN_OR_RETURN(const RunResult expected, runner.Run(input));
  VOXCONV_ASSIGN_OR_RETURN(const auto frame, runner.Record(input));
  VOXCONV_RETURN_IF_ERROR(frame->Replay());
  VOXCONV_RETURN_IF_ERROR(measure::CheckReplay(runner, frame->result().output.features(),
                                               expected.output.features(), context));
  std::vector<double> wall, queued;
  for (int i = 0; i < frames.count; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time, measure::TimeReplay(*frame, context));
    wall.push_back(time.wall_ms);
    queued.push_back(time.queued_ms);
  }
  frames.replayed_ms = measure::Quantile(wall, 0.5);
  frames.replay_queued_ms = measure::Quantile(queued, 0.5);
  return absl::OkStatus();
}

// One frame in which the maps of plugins from libraries are held against their definition before a
// dataflow reads rows by them. A wrong map could name rows that are not there.
absl::Status CheckLoadedMappings(const NetworkGraph& graph, RunConfig config,
                                 const SparseTensorView& input, Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(const Registry checked,
                           measure::WithCheckedMaps(session.registry(), measure::IsLoadedMapping));
  config.parallel_maps = false;  // a check waits for its map
  VOXCONV_ASSIGN_OR_RETURN(const auto runner,
                           NetworkRunner::Create(graph, config, checked, session.backend()));
  VOXCONV_RETURN_IF_ERROR(runner->Run(input).status());
  return session.Context().stream->Synchronize();
}

// Says so where one run takes minutes or more. This is a bound from below, so that it is true on
// every machine: the layers on the input's own voxels alone, whose pairs are known, at the peak of
// the fastest processors.
void SayHowLong(const NetworkGraph& graph, const VoxelizedCloud& cloud, const Backend& backend) {
  constexpr double kCpuPeak = 1.5e11, kCudaPeak = 1e15;  // multiply-adds a second
  constexpr double kLong = 60;
  const double rate = backend.kind() == BackendKind::kCpu
                          ? kCpuPeak * std::max(1u, std::thread::hardware_concurrency())
                          : kCudaPeak;
  double products = 0;  // channels, of layers with a kernel of 3
  for (const int id : graph.Convolutions(/*with_shortcuts=*/false)) {
    const Node& node = graph.node(id);
    if (node.coordinates != graph.node(0).coordinates ||
        node.geometry.kind != ConvKind::kSubmanifold || node.geometry.kernel != Int3{3, 3, 3}) {
      continue;
    }
    products += static_cast<double>(graph.InputChannels(node)) * static_cast<double>(node.channels);
  }
  if (27 * products * static_cast<double>(cloud.size()) < kLong * rate) return;
  const measure::InputDensity density = measure::MeasureDensity(cloud.coords);
  const double work =
      products * static_cast<double>(density.voxels) * static_cast<double>(density.neighbours);
  if (work < kLong * rate) return;
  std::cout << absl::StrFormat(
                   "one run takes more than %s: its layers at full resolution have %.2g "
                   "multiply-adds",
                   absl::FormatDuration(absl::Seconds(static_cast<int64_t>(work / rate))), work)
            << std::endl;
}

absl::Status RunNetwork(const po::variables_map& values, const measure::Defaults& defaults,
                        Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision,
                           ParsePrecision(values["dtype"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, BuildGraph(values));
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInput(values));
  VOXCONV_ASSIGN_OR_RETURN(const measure::Configuration configuration,
                           ParseConfiguration(values, defaults, cloud, precision, session));
  constexpr int kMostWarmup = 1000000;
  if (const int warmup = values["warmup"].as<int>(); warmup < 0 || warmup > kMostWarmup) {
    return absl::InvalidArgumentError(
        absl::StrCat("--warmup ", warmup, ": allowed are 0 .. ", kMostWarmup));
  }
  VOXCONV_ASSIGN_OR_RETURN(const int num_frames, ParseFrames(values, session.backend().kind()));
  VOXCONV_RETURN_IF_ERROR(CheckCudaOptions(values, session.backend().kind(), num_frames));
  const int64_t in_channels = graph.in_channels();
  SayHowLong(graph, cloud, session.backend());
  RunConfig config{.planner = measure::MakePlanner(configuration),
                   .precision = precision,
                   .fold_batch_norm = values["fold-batch-norm"].as<bool>(),
                   .keep_maps = values["keep-maps"].as<bool>(),
                   .parallel_maps = !values["serial-maps"].as<bool>()};
  const ExecutionContext context = session.Context();
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor tensor,
                           MakeSparseTensor(cloud, in_channels, context));
  const SparseTensorView input = tensor.view();
  if (measure::HasLoadedMapping(configuration)) {
    VOXCONV_RETURN_IF_ERROR(CheckLoadedMappings(graph, config, input, session));
  }
  VOXCONV_ASSIGN_OR_RETURN(
      auto runner,
      NetworkRunner::Create(std::move(graph), config, session.registry(), session.backend()));
  std::cout << values["network"].as<std::string>() << " on " << values["input"].as<std::string>()
            << ": " << cloud.size() << " voxels of " << cloud.points << " points (" << cloud.dropped
            << " dropped); " << session.backend().DeviceName() << "\n";
  PrintChannels(cloud, in_channels);
  for (int i = 0; i < values["warmup"].as<int>(); ++i) {
    VOXCONV_RETURN_IF_ERROR(runner->Run(input).status());
  }
  RunResult result;
  VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime profiled,
                           RunProfiled(*runner, input, context, result));
  Frames frames{.wall_ms = profiled.wall_ms};
  if (num_frames > 0) {
    VOXCONV_ASSIGN_OR_RETURN(frames, TimeFrames(*runner, input, context, num_frames));
  }
  if (values["graph"].as<bool>()) {
    VOXCONV_RETURN_IF_ERROR(TimeReplays(*runner, input, context, frames));
  }

  PrintLayerTable(result.report);
  if (values["map-sizes"].as<bool>()) PrintMapSizes(result.report);
  PrintTotals(result.report, frames, session.backend());
  if (values.count("out") == 0) return absl::OkStatus();
  return measure::AppendLine(
      values["out"].as<std::string>(),
      ResultJson(values, configuration, cloud, result.report, frames, session.backend()));
}

}  // namespace

absl::Status RunRun(const std::vector<std::string>& args) {
  po::options_description options = RunNetworkOptions();
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(const po::options_description configuration,
                           ConfigurationOptions(defaults));
  options.add(configuration).add(InputOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("run --input FILE|scene:NAME [OPTIONS]", options, {}, args));
  VOXCONV_RETURN_IF_ERROR(
      CheckOutputs(GivenPaths(values, {"input", "plan"}), GivenPaths(values, {"out"})));
  if (values.count("out") != 0) {
    VOXCONV_RETURN_IF_ERROR(measure::CheckWritable(values["out"].as<std::string>()));
  }
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  return RunNetwork(values, defaults, *session);
}

}  // namespace voxconv::cli
