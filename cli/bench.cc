// SPDX-License-Identifier: Apache-2.0
// `voxconv bench`: Google Benchmark over everything that is registered.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "benchmark/benchmark.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/cli/cache_options.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/io/scene_spec.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/bench/device_benchmarks.h"
#include "voxconv/measure/bench/run_benchmarks.h"
#include "voxconv/measure/bench/voxel_benchmarks.h"
#include "voxconv/measure/build_info.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {
namespace {

using Strings = std::vector<std::string>;

po::options_description BenchOptions() {
  po::options_description options(
      "What is measured (all --benchmark_* flags, such as --benchmark_filter=REGEX, "
      "--benchmark_list_tests and --benchmark_out=FILE, are those of Google Benchmark)");
  options.add_options()  //
      ("input",
       po::value<Strings>()->default_value({"scene:lidar64", "scene:uniform"},
                                           "scene:lidar64 scene:uniform"),
       "a point cloud's path or a scene; may be repeated")  //
      ("voxel-size", po::value<std::string>()->default_value("0.05"),
       "edge of a voxel; one or three values")                                //
      ("range", po::value<std::string>(), kRangeHelp)                         //
      ("order", po::value<std::string>()->default_value("scan"), kOrderHelp)  //
      ("mapping", po::value<Strings>()->default_value({}, "all variants"),
       "spec of a mapping; may be repeated")  //
      ("dataflow", po::value<Strings>()->default_value({}, "all variants"),
       "spec of a dataflow; may be repeated")  //
      ("channels", po::value<Strings>()->default_value({"64x64"}, "64x64"),
       "input and output channels of a layer, as C_INxC_OUT or C_IN,C_OUT; may be repeated")  //
      ("threads", po::value<std::string>()->default_value("0"),
       "CPU thread counts, separated by commas; 0: all cores")                                 //
      ("backend", po::value<std::string>()->default_value("cpu"), "the backend: cpu or cuda")  //
      ("device", po::value<int>()->default_value(0), "CUDA: index of the GPU")                 //
      ("dtype", po::value<Strings>()->default_value({"f16"}, "the backend's"),
       "dtype of features and weights: on CUDA f32, tf32, f16 or bf16, by default f16; on the CPU "
       "f32, the default, or for layers bf16; may be repeated")  //
      ("output-coords", po::value<Strings>()->default_value({}, "all variants"),
       "CUDA: spec of the output coordinates of strided maps; may be repeated")  //
      ("network", po::value<Strings>()->default_value({}, "none"),
       absl::StrCat("also time whole frames of this network; may be repeated: ",
                    absl::StrJoin(ModelNames(), ", "))
           .c_str())  //
      ("config", po::value<Strings>()->default_value({}, "the backend's usual one"),
       "configuration of the networks: a preset or MAPPING/DATAFLOW[/OUTPUT_COORDS]; may be "
       "repeated")  //
      ("serial-maps", po::bool_switch(),
       "CUDA: networks build each map when its first layer needs it, not ahead on further "
       "streams")  //
      ("graph", po::bool_switch(),
       "CUDA: also replay frames, and with --training steps, with kept maps as a CUDA graph")  //
      ("in-flight", po::value<int>()->default_value(1),
       "CUDA: also time this many frames of the networks at once, each on its own stream")  //
      ("points", po::bool_switch(),
       "also time voxelisation of the input's points, and frames of the networks from points")  //
      ("training", po::bool_switch(),
       "also time whole training steps of the networks, and on CUDA the gradients of layers")  //
      ("plugin", po::value<Strings>()->default_value({}, ""),
       "a shared library with plugins; may be repeated");
  AddCacheOptions(options);
  AddGridOption(options);
  return options;
}

absl::StatusOr<std::vector<int>> ParseThreads(const std::string& text) {
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int count = 0;
    if (!absl::SimpleAtoi(part, &count) || count < 0 || count > 1024) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--threads '", text, "': counts of 0 .. 1024, separated by commas, are needed"));
    }
    counts.push_back(count);
  }
  return counts;
}

// What can be said before the first benchmark reads the input: a name that leads nowhere and a size
// that is none would otherwise be repeated by every benchmark.
absl::Status CheckInput(const std::string& input, const LoadOptions& load) {
  VOXCONV_RETURN_IF_ERROR(Voxelize(PointCloud{}, load.voxelize).status());
  // Whether it holds voxels, which have their size, is known once it is read.
  if (load.voxelize.size != VoxelizeOptions().size) return LoadInputAsAsked(input, load).status();
  if (IsSceneSpec(input)) return ParseSceneSpec(input).status();
  std::error_code ignored;
  if (std::filesystem::exists(input, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(input, ": no such file"));
}

// Whether --points means this input. A file counts as points here; its benchmark refuses it if it
// holds voxels.
bool HoldsPoints(const std::string& input) {
  if (!IsSceneSpec(input)) return true;
  const auto spec = ParseSceneSpec(input);
  return spec.ok() && std::any_of(ListScenes().begin(), ListScenes().end(), [&](const auto& scene) {
           return scene.name == spec->name && !scene.makes_voxels;
         });
}

// A benchmark that is asked for twice would have two figures under one name.
template <typename T>
void AddOnce(std::vector<T>& list, T value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(std::move(value));
}

// Specs as given, checked, or all variants of the family.
template <typename Plugin>
absl::StatusOr<Strings> Specs(const Strings& given, const PluginFamily<Plugin>& family,
                              BackendKind backend) {
  if (given.empty()) return family.Variants(backend);
  Strings specs;
  for (const std::string& spec : given) {
    VOXCONV_ASSIGN_OR_RETURN(std::string canonical, family.Canonical(spec));
    AddOnce(specs, std::move(canonical));
  }
  return specs;
}

bench::Asked AskedOf(const po::variables_map& values, const char* option) {
  return values[option].as<Strings>().empty() ? bench::Asked::kAsVariant : bench::Asked::kByName;
}

// What is benchmarked, from the command line.
struct Request {
  Strings inputs, mappings, dataflows, output_coords;
  std::vector<bench::Channels> channels;
  std::vector<int> threads;
  std::vector<Precision> precisions;
  LoadOptions load;
  bench::Asked asked_mappings, asked_dataflows;
  bool training = false;
  bool points = false;
  measure::CacheOptions cache;
};

absl::StatusOr<Request> ParseRequest(const po::variables_map& values, const Registry& registry,
                                     BackendKind backend) {
  Request request;
  request.asked_mappings = AskedOf(values, "mapping");
  request.asked_dataflows = AskedOf(values, "dataflow");
  request.training = values["training"].as<bool>();
  request.points = values["points"].as<bool>();
  VOXCONV_ASSIGN_OR_RETURN(request.cache, ParseCacheOptions(values, backend));
  VOXCONV_ASSIGN_OR_RETURN(request.mappings,
                           Specs(values["mapping"].as<Strings>(), registry.mappings(), backend));
  VOXCONV_ASSIGN_OR_RETURN(request.dataflows,
                           Specs(values["dataflow"].as<Strings>(), registry.dataflows(), backend));
  VOXCONV_ASSIGN_OR_RETURN(request.output_coords, Specs(values["output-coords"].as<Strings>(),
                                                        registry.output_coords(), backend));
  VOXCONV_ASSIGN_OR_RETURN(request.threads, ParseThreads(values["threads"].as<std::string>()));
  for (const std::string& text : values["channels"].as<Strings>()) {
    VOXCONV_ASSIGN_OR_RETURN(const LayerChannels channels, ParseLayerChannels(text));
    AddOnce(request.channels, bench::Channels{channels.in, channels.out});
  }
  if (backend == BackendKind::kCpu && values["dtype"].defaulted()) {
    request.precisions = {Precision::kF32};
  } else {
    for (const std::string& text : values["dtype"].as<Strings>()) {
      VOXCONV_ASSIGN_OR_RETURN(const Precision precision, ParsePrecision(text));
      AddOnce(request.precisions, precision);
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(request.load.voxelize.size,
                           ParseDouble3("--voxel-size", values["voxel-size"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(request.load.voxelize.order, ParseOrderOption(values));
  if (values.count("range") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(request.load.range,
                             ParseRange("--range", values["range"].as<std::string>()));
  }
  for (const std::string& input : values["input"].as<Strings>()) {
    VOXCONV_RETURN_IF_ERROR(CheckInput(input, request.load));
    AddOnce(request.inputs, input);
  }
  if (request.points && request.load.voxelize.order != RowOrder::kScan) {
    return absl::InvalidArgumentError(absl::StrCat("--order ", values["order"].as<std::string>(),
                                                   " has no meaning with --points, whose voxels "
                                                   "come in scan order"));
  }
  if (request.points && std::none_of(request.inputs.begin(), request.inputs.end(), HoldsPoints)) {
    return absl::InvalidArgumentError(absl::StrCat("--points: ", request.inputs.front(),
                                                   " holds voxels; an input of points is needed"));
  }
  return request;
}

// Those of the variants that the plugin supports. What was asked for by name stays, and says itself
// why it does not run.
template <typename Plugin, typename Supports>
Strings Supported(const Strings& specs, bench::Asked asked, const PluginFamily<Plugin>& family,
                  const Supports& supports) {
  if (asked == bench::Asked::kByName) return specs;
  Strings supported;
  for (const std::string& spec : specs) {
    const auto plugin = family.Create(spec, BackendKind::kCpu);
    if (plugin.ok() && supports(**plugin)) supported.push_back(spec);
  }
  return supported;
}

absl::Status RegisterCpu(const Request& request, const Registry& registry,
                         const std::shared_ptr<bench::GateFailures>& failures) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometry::Create({}));
  const Strings mappings =
      Supported(request.mappings, request.asked_mappings, registry.mappings(),
                [&](const Mapping& mapping) { return mapping.Supports(geometry).ok; });
  for (int count : request.threads) {
    bench::AddCopyBenchmark(count);
    for (const Precision precision : request.precisions) bench::AddPeakBenchmark(precision, count);
  }
  for (const std::string& input : request.inputs) {
    for (int count : request.threads) {
      if (request.points && HoldsPoints(input)) {
        bench::AddVoxelizeBenchmark(input, request.load, count, failures);
      }
      const auto scenario = std::make_shared<bench::Scenario>(input, request.load, count, registry);
      for (const std::string& spec : mappings) {
        bench::AddMapBenchmark(spec, request.asked_mappings, scenario, failures);
      }
      for (const bench::Channels& channels : request.channels) {
        bench::AddSgemmBenchmark(channels, scenario);
        for (const Precision precision : request.precisions) {
          const ConvShape shape = ShapeOfLayer(geometry, channels.in, channels.out, precision);
          const auto supports = [&](const Dataflow& dataflow) {
            return dataflow.Supports(Pass::kForward, shape).ok;
          };
          for (const std::string& spec : Supported(request.dataflows, request.asked_dataflows,
                                                   registry.dataflows(), supports)) {
            bench::AddConvBenchmark(spec, request.asked_dataflows, channels, precision, scenario,
                                    failures);
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

// No dataflow, and one of the request's for each way to read a map of kernel 3 among them, with the
// first channels and dtype that it supports.
absl::StatusOr<std::vector<bench::MapReader>> MapReaders(const Request& request,
                                                         const Registry& registry,
                                                         BackendKind backend) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometry::Create({}));
  std::vector<bench::MapReader> readers = {{}};
  std::vector<std::pair<std::string, MapNeed>> known;  // with the plugin whose layout it is
  for (const std::string& spec : request.dataflows) {
    VOXCONV_ASSIGN_OR_RETURN(const auto dataflow, registry.dataflows().Create(spec, backend));
    VOXCONV_ASSIGN_OR_RETURN(const PluginSpec parsed, ParsePluginSpec(spec));
    for (const Precision precision : request.precisions) {
      for (const bench::Channels& channels : request.channels) {
        const ConvShape shape = ShapeOfLayer(geometry, channels.in, channels.out, precision);
        if (!dataflow->Supports(Pass::kForward, shape).ok) continue;
        const MapNeed need = dataflow->NeededMap(Pass::kForward, shape);
        const std::pair key(need.layout.empty() ? "" : parsed.name, need);
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        known.push_back(key);
        readers.push_back({spec, channels, precision});
      }
    }
  }
  return readers;
}

absl::Status RegisterCuda(const Request& request, int device, const Registry& registry,
                          const std::shared_ptr<bench::GateFailures>& failures) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<bench::MapReader> readers,
                           MapReaders(request, registry, BackendKind::kCuda));
  bool first = true;
  for (const std::string& input : request.inputs) {
    const auto scenario = std::make_shared<bench::DeviceScenario>(input, request.load, device,
                                                                  registry, request.cache);
    if (std::exchange(first, false)) bench::AddCeilingBenchmarks(scenario, request.precisions);
    if (request.points && HoldsPoints(input)) {
      bench::AddDeviceVoxelizeBenchmark(input, request.load, scenario, failures);
    }
    bench::AddDeviceSortBenchmark(scenario, failures);
    for (const std::string& spec : request.mappings) {
      for (const bench::MapReader& reader : readers) {
        bench::AddDeviceMapBenchmark(spec, reader, scenario, failures);
      }
      for (const std::string& coords : request.output_coords) {
        bench::AddDeviceStridedBenchmark(spec, coords, scenario);
      }
    }
    for (const Precision precision : request.precisions) {
      for (const bench::Channels& shape : request.channels) {
        for (const std::string& spec : request.dataflows) {
          bench::AddDeviceConvBenchmark(spec, shape, precision, scenario, failures);
          if (!request.training) continue;
          for (const bench::TimedPasses passes :
               {bench::TimedPasses::kInputGrad, bench::TimedPasses::kWeightGrad,
                bench::TimedPasses::kAll}) {
            bench::AddDeviceGradientBenchmark(spec, shape, precision, passes, scenario, failures);
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

// Every network with every configuration and dtype, maps built anew and kept, and if asked for as a
// graph.
absl::StatusOr<std::vector<bench::NetworkSpec>> ParseNetworks(const po::variables_map& values,
                                                              BackendKind backend,
                                                              const Request& request,
                                                              const Registry& registry) {
  Strings names = values["config"].as<Strings>();
  if (names.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
    VOXCONV_ASSIGN_OR_RETURN(const LayerChoice choice, defaults.LayersOn(backend));
    names = {absl::StrCat(choice.mapping, "/", choice.dataflow, "/", choice.output_coords)};
  }
  Strings distinct, networks;
  for (const std::string& name : names) AddOnce(distinct, name);
  names = distinct;
  for (const std::string& name : values["network"].as<Strings>()) AddOnce(networks, name);
  const std::vector<Precision> precisions =
      backend == BackendKind::kCpu ? std::vector{Precision::kF32} : request.precisions;
  VOXCONV_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelOptions(values));
  std::vector<bench::NetworkSpec> specs;
  for (const std::string& network : networks) {
    VOXCONV_RETURN_IF_ERROR(MakeModel(network, model).status());
    for (const std::string& name : names) {
      VOXCONV_ASSIGN_OR_RETURN(const auto configuration, measure::ResolveConfig(name, registry));
      for (const Precision precision : precisions) {
        bench::NetworkSpec spec{network, model.grid, name, configuration, precision};
        spec.parallel_maps = !values["serial-maps"].as<bool>();
        specs.push_back(spec);
        bench::NetworkSpec beside = spec;
        beside.in_flight = values["in-flight"].as<int>();
        if (beside.in_flight > 1) specs.push_back(beside);
        spec.keep_maps = true;
        specs.push_back(spec);
        spec.graph = true;
        if (values["graph"].as<bool>()) specs.push_back(spec);
      }
    }
  }
  return specs;
}

absl::Status RegisterNetworks(const po::variables_map& values, const BackendChoice& choice,
                              const Request& request, const Registry& registry,
                              const std::shared_ptr<bench::GateFailures>& failures) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<bench::NetworkSpec> specs,
                           ParseNetworks(values, choice.kind, request, registry));
  for (const std::string& input : request.inputs) {
    const auto scenario = std::make_shared<bench::NetworkScenario>(input, request.load, choice,
                                                                   registry, request.cache);
    for (const bench::NetworkSpec& spec : specs) {
      bench::AddNetworkBenchmark(spec, scenario, failures);
      if (spec.in_flight > 1) continue;
      if (request.points && !spec.keep_maps && HoldsPoints(input)) {
        bench::AddPointNetworkBenchmark(spec, input, request.load, choice, registry, failures);
      }
      if (request.training) bench::AddTrainingBenchmark(spec, scenario, failures);
    }
  }
  return absl::OkStatus();
}

// What would be left out without a word.
absl::Status CheckApplicable(const po::variables_map& values, BackendKind backend) {
  const bool networks = !values["network"].as<Strings>().empty();
  for (const char* name : {"config", "grid", "serial-maps", "graph", "in-flight"}) {
    if (networks || values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " has no meaning without --network"));
  }
  if (values["training"].as<bool>() && !networks && backend == BackendKind::kCpu) {
    return absl::InvalidArgumentError(
        "--training has no meaning without --network or --backend cuda");
  }
  VOXCONV_RETURN_IF_ERROR(CheckDevice(values, backend));
  // Each has runs, or a backend, that nothing empties or limits a cache for.
  for (const char* cache : {"cache", "l2-mib"}) {
    if (values[cache].defaulted()) continue;
    for (const char* name : {"points", "training", "in-flight"}) {
      if (values[name].defaulted()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", cache, " has no meaning together with --", name));
    }
  }
  constexpr int kMostInFlight = 16;
  const int in_flight = values["in-flight"].as<int>();
  if (in_flight < 1 || in_flight > kMostInFlight) {
    return absl::InvalidArgumentError(
        absl::StrCat("--in-flight ", in_flight, ": allowed are 1 .. ", kMostInFlight));
  }
  if (in_flight > 1 && backend != BackendKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("--in-flight ", in_flight, ": only --backend cuda has several streams"));
  }
  if (backend != BackendKind::kCuda && !values["output-coords"].as<Strings>().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output-coords ", values["output-coords"].as<Strings>()[0],
                     ": has no meaning with --backend cpu, on which no strided map is timed"));
  }
  for (const std::string& dtype : values["dtype"].as<Strings>()) {
    if (backend == BackendKind::kCuda || values["dtype"].defaulted()) continue;
    if (dtype == "f32" || (dtype == "bf16" && !networks)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--dtype ", dtype,
                                                   ": allowed with --backend cpu is f32",
                                                   networks ? "" : ", and bf16 without networks"));
  }
  return absl::OkStatus();
}

absl::Status Register(const po::variables_map& values, const Registry& registry,
                      const std::shared_ptr<bench::GateFailures>& failures) {
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(Request request, ParseRequest(values, registry, kind));
  VOXCONV_RETURN_IF_ERROR(CheckApplicable(values, kind));
  if (kind == BackendKind::kCpu) {
    // Names say how many threads run: 0 would be another number on another machine.
    std::vector<int> counts;
    for (const int threads : request.threads) {
      VOXCONV_RETURN_IF_ERROR(CheckThreads(threads));
      VOXCONV_ASSIGN_OR_RETURN(const auto backend, CpuBackend::Create({.threads = threads}));
      AddOnce(counts, backend->threads());
    }
    request.threads = counts;
  }
  const BackendChoice choice{
      .kind = kind, .device = values["device"].as<int>(), .threads = request.threads.front()};
  if (values["graph"].as<bool>() && kind != BackendKind::kCuda) {
    return absl::InvalidArgumentError("--graph: only --backend cuda has graphs");
  }
  // Refused once, not by every benchmark.
  VOXCONV_RETURN_IF_ERROR(MakeBackend(choice).status());
  if (kind == BackendKind::kCpu) {
    VOXCONV_RETURN_IF_ERROR(RegisterCpu(request, registry, failures));
  } else {
    VOXCONV_RETURN_IF_ERROR(RegisterCuda(request, choice.device, registry, failures));
  }
  return RegisterNetworks(values, choice, request, registry, failures);
}

// Google Benchmark calls this for a value that it does not know, and would then end the program
// with status 0.
void RefuseValueOfLibrary() {
  std::cerr
      << "voxconv bench: a --benchmark flag has a value that Google Benchmark does not take\n";
  std::_Exit(2);  // exit() is what plugins are kept from
}

// kInvalidArgument for a flag that the library did not take; ReportUnrecognizedArguments would
// print of it what the status says again.
absl::Status InitializeLibrary(Strings flags) {
  static std::string program = "voxconv bench";  // the library keeps a pointer to it
  std::vector<char*> argv = {program.data()};
  for (std::string& flag : flags) argv.push_back(flag.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data(), RefuseValueOfLibrary);
  if (argc == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(argv[1], ": Google Benchmark does not take this flag or its value"));
}

}  // namespace

absl::Status RunBench(const std::vector<std::string>& args) {
  Strings ours, theirs;
  for (const std::string& arg : args) {
    (absl::StartsWith(arg, "--benchmark") ? theirs : ours).push_back(arg);
  }
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("bench [OPTIONS] [--benchmark_...]", BenchOptions(), {}, ours));
  for (const std::string& flag : theirs) {
    absl::string_view out = flag;
    if (!absl::ConsumePrefix(&out, "--benchmark_out=") || out.empty()) continue;
    VOXCONV_RETURN_IF_ERROR(
        CheckOutputs(GivenPaths(values, {"input"}), {{"--benchmark_out", std::string(out)}}));
  }
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(RegisterPlugins(values, registry));

  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  WarnOfSlowProducts(kind);
  VOXCONV_RETURN_IF_ERROR(InitializeLibrary(std::move(theirs)));
  const measure::BuildInfo build = measure::GetBuildInfo();
  benchmark::AddCustomContext("voxconv_commit", build.commit);
  benchmark::AddCustomContext("voxconv_dirty", build.dirty ? "true" : "false");
  benchmark::AddCustomContext("voxconv_build_type", build.build_type);
  benchmark::AddCustomContext("voxconv_compiler", build.compiler);
  benchmark::AddCustomContext("voxconv_program", measure::ProgramHash());
  benchmark::AddCustomContext("voxconv_product", absl::StrCat("voxconv's own, ", SgemmTarget()));
  benchmark::AddCustomContext("voxel_size", values["voxel-size"].as<std::string>());
  benchmark::AddCustomContext("order", values["order"].as<std::string>());
  for (const LoadedPlugin& plugin : LoadedPlugins()) {
    benchmark::AddCustomContext(absl::StrCat("plugin_", plugin.name), plugin.hash);
  }
  const auto failures = std::make_shared<bench::GateFailures>();
  VOXCONV_RETURN_IF_ERROR(Register(values, registry, failures));
  const absl::Status run = bench::RunBenchmarks();
  // They hold references to the registry.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
  if (failures->count == 0) return run;
  return absl::InternalError(
      absl::StrCat(failures->count, " benchmarks gave wrong results and were not timed"));
}

}  // namespace voxconv::cli
