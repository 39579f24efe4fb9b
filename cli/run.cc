// SPDX-License-Identifier: Apache-2.0
// voxconv run: a network on a point cloud.
#include <algorithm>
#include <iostream>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/plan_option.h"
#include "voxconv/cli/run_report.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/network_features.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {
namespace {

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
    VOXCONV_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelOptions(values));
    return LoadPlan(values["plan"].as<std::string>(),
                    {.network = values["network"].as<std::string>(),
                     .model = model,
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

po::options_description RunNetworkOptions() {
  po::options_description options("Network");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value("minkunet42"),
       absl::StrCat("the network: ", absl::StrJoin(ModelNames(), ", ")).c_str());
  AddNetworkOptions(options);
  options.add_options()  //
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
      ("reorder", po::bool_switch(),
       "each frame first sorts the input's voxels, runs on them in this order, and gives results "
       "back in the order of the input; the times include this")  //
      ("keep-maps", po::bool_switch(),
       "later runs, the reported run and the frames use the maps of the first run; coordinates and "
       "maps then take no time")  //
      ("graph", po::bool_switch(),
       "CUDA: also replay the frames as a CUDA graph and compare; needs --keep-maps")  //
      ("frames", po::value<int>(),
       "number of frames that are timed as a whole, without stage times; default on the CPU 0, on "
       "CUDA 20")                                                                     //
      ("warmup", po::value<int>()->default_value(1), "runs before the reported run")  //
      ("verbose", po::bool_switch(),
       "also print each layer's dataflow and the kernel that multiplied")                         //
      ("map-sizes", po::bool_switch(), "also print the pairs per kernel offset of each new map")  //
      ("features-out", po::value<std::string>(),
       "write coordinates and features of --layer to this .npz file, from one more run; - is "
       "standard output")  //
      ("layer", po::value<std::string>(),
       "of --features-out: NAME[,NAME...], as the table names them; default: the last layer")  //
      ("out", po::value<std::string>(),
       "append the result to this file as one JSON line; - is standard output");
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

absl::Status CheckFeaturesOut(const po::variables_map& values) {
  if (values.count("features-out") == 0) {
    if (values.count("layer") == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("--layer: has no meaning without --features-out");
  }
  const std::string& path = values["features-out"].as<std::string>();
  if (values["fold-batch-norm"].as<bool>()) {
    return absl::InvalidArgumentError(
        "--fold-batch-norm: has no meaning together with --features-out; a folded layer has no "
        "features of its own");
  }
  if (path == kStandardOutput) {
    if (!values["json"].as<bool>()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--features-out -: standard output is that of --json; allowed is a file");
  }
  if (!absl::EndsWith(path, ".npz")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--features-out ", path, ": the name must end in .npz"));
  }
  return CheckWriteFile(path);
}

// Before the measured runs, whose layers may be fused and whose tensors are freed.
absl::Status WriteFeatures(const po::variables_map& values, const NetworkGraph& graph,
                           const RunConfig& config, const SparseTensorView& input, Session& session,
                           StandardOutput& output) {
  if (values.count("features-out") == 0) return absl::OkStatus();
  std::vector<std::string> layers = {graph.node(graph.output()).name};
  if (values.count("layer") != 0) layers = absl::StrSplit(values["layer"].as<std::string>(), ',');
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays arrays,
                           measure::FeaturesOfLayers(graph, config, layers, input,
                                                     session.registry(), session.backend()));
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, SerializeNpz(arrays));
  return output.WriteFiles({{values["features-out"].as<std::string>(), bytes}});
}

// Options of other backends than the one that runs (docs/formats.md, Plugins).
void PrintLeftOut(const measure::Configuration& configuration, BackendKind backend) {
  const BackendKind other = backend == BackendKind::kCuda ? BackendKind::kCpu : BackendKind::kCuda;
  const std::string prefix = absl::StrCat(other.name(), ".");
  std::set<std::string> left_out;
  const std::string specs = measure::ToJson(configuration).dump();
  for (const absl::string_view part : absl::StrSplit(specs, absl::ByAnyChar(":,\""))) {
    if (absl::StartsWith(part, prefix)) left_out.emplace(part);
  }
  if (left_out.empty()) return;
  std::cout << "left out on " << backend.name() << ": " << absl::StrJoin(left_out, ", ") << "\n";
}

// The runs before the reported one. The first of them is the first frame, if nothing has run a
// frame in this process before (`is_first`).
absl::Status WarmUp(NetworkRunner& runner, const SparseTensorView& input,
                    const ExecutionContext& context, int runs, bool is_first, Start& start) {
  RunResult result;
  runner.set_profile_stages(false);
  for (int i = 0; i < runs; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time,
                             measure::TimeFrame(runner, input, context, result));
    if (i == 0 && is_first) start.first_frame_ms = time.wall_ms;
  }
  runner.set_profile_stages(true);
  return absl::OkStatus();
}

absl::Status RunNetwork(const po::variables_map& values, const measure::Defaults& defaults,
                        Start start, Session& session, StandardOutput& output) {
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision,
                           ParseNetworkDtype(values, session.backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, BuildNetwork(values));
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
  std::cout << HowLong(graph, cloud, PeakRate(session.backend())) << std::flush;
  PrintLeftOut(configuration, session.backend().kind());
  RunConfig config{.planner = measure::MakePlanner(configuration),
                   .precision = precision,
                   .fold_batch_norm = values["fold-batch-norm"].as<bool>(),
                   .keep_maps = values["keep-maps"].as<bool>(),
                   .reorder_input = values["reorder"].as<bool>(),
                   .parallel_maps = !values["serial-maps"].as<bool>()};
  const ExecutionContext context = session.Context();
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor tensor,
                           MakeSparseTensor(cloud, in_channels, context));
  const SparseTensorView input = tensor.view();
  if (measure::HasLoadedMapping(configuration)) {
    VOXCONV_RETURN_IF_ERROR(CheckLoadedMappings(graph, config, input, session));
  }
  VOXCONV_RETURN_IF_ERROR(WriteFeatures(values, graph, config, input, session, output));
  const measure::Timer network_timer;
  VOXCONV_ASSIGN_OR_RETURN(
      auto runner,
      NetworkRunner::Create(std::move(graph), config, session.registry(), session.backend()));
  start.network_ms = network_timer.Milliseconds();
  std::cout << values["network"].as<std::string>() << " on " << values["input"].as<std::string>()
            << ": " << cloud.size() << " voxels of " << cloud.points << " points (" << cloud.dropped
            << " dropped), order " << ToString(cloud.order) << "; "
            << session.backend().DeviceName() << "\n";
  PrintChannels(cloud, in_channels);
  const bool is_first =
      !measure::HasLoadedMapping(configuration) && values.count("features-out") == 0;
  VOXCONV_RETURN_IF_ERROR(
      WarmUp(*runner, input, context, values["warmup"].as<int>(), is_first, start));
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

  PrintLayerTable(result.report, values["verbose"].as<bool>());
  if (values["map-sizes"].as<bool>()) PrintMapSizes(result.report);
  PrintTotals(result.report, start, frames, session.backend());
  return output.WriteResult(values, ResultJson(values, configuration, cloud, result.report, start,
                                               frames, session.backend()));
}

}  // namespace

absl::Status RunRun(const std::vector<std::string>& args) {
  po::options_description options = RunNetworkOptions();
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(const po::options_description configuration,
                           ConfigurationOptions(defaults));
  options.add(configuration).add(JsonOption()).add(InputOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("run --input FILE|scene:NAME [OPTIONS]", options, {}, args));
  VOXCONV_RETURN_IF_ERROR(CheckOutputs(GivenPaths(values, {"input", "plan", "weights"}),
                                       GivenPaths(values, {"out", "features-out"})));
  VOXCONV_RETURN_IF_ERROR(CheckOut(values));
  VOXCONV_RETURN_IF_ERROR(CheckFeaturesOut(values));
  StandardOutput output(values);
  const measure::Timer timer;
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  const Start start{.backend_ms = timer.Milliseconds()};
  return RunNetwork(values, defaults, start, *session, output);
}

}  // namespace voxconv::cli
