// `voxconv bench`: Google Benchmark over everything that is registered.
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "benchmark/benchmark.h"
#include "cli/bench/benchmarks.h"
#include "cli/command.h"
#include "cli/input_options.h"
#include "cli/network_frame.h"
#include "cli/session.h"
#include "experiments/harness/build_info.h"
#include "experiments/harness/preset.h"
#include "io/scene_spec.h"
#include "networks/models.h"

namespace voxconv::cli {
namespace {

using Strings = std::vector<std::string>;

po::options_description BenchOptions() {
  po::options_description options(
      "What is measured (--benchmark_filter=REGEX, --benchmark_list_tests, --benchmark_out=FILE "
      "and all other --benchmark_* flags are Google Benchmark's)");
  options.add_options()  //
      ("input",
       po::value<Strings>()->default_value({"scene:lidar64", "scene:uniform"},
                                           "scene:lidar64 scene:uniform"),
       "a point cloud or scene; may be repeated")                                               //
      ("voxel-size", po::value<std::string>()->default_value("0.05"), "one or three values")    //
      ("mapping", po::value<Strings>()->default_value({}, "all variants"), "may be repeated")   //
      ("dataflow", po::value<Strings>()->default_value({}, "all variants"), "may be repeated")  //
      ("channels", po::value<Strings>()->default_value({"64x64"}, "64x64"),
       "C_INxC_OUT; may be repeated")  //
      ("threads", po::value<std::string>()->default_value("0"),
       "CPU thread counts, separated by commas; 0: all cores")  //
      ("backend", po::value<std::string>()->default_value("cpu"),
       "cpu or cuda; on cuda only networks are measured")                         //
      ("device", po::value<int>()->default_value(0), "index of the CUDA device")  //
      ("network", po::value<Strings>()->default_value({}, "none on the CPU, else the first two"),
       absl::StrCat("whole frames; may be repeated: ", absl::StrJoin(ModelNames(), ", "))
           .c_str())  //
      ("config", po::value<Strings>()->default_value({}, "the backend's usual one"),
       "for networks, a preset or MAPPING/DATAFLOW[/OUTPUT_COORDS]; may be repeated")  //
      ("serial-maps", po::bool_switch(),
       "networks build maps one by one, not all at the start on parallel streams (CUDA)")  //
      ("dtype", po::value<Strings>()->default_value({}, "f32 on the CPU, f16 on CUDA"),
       "of networks; may be repeated")  //
      ("plugin", po::value<Strings>()->default_value({}, ""), "shared library with plugins");
  return options;
}

absl::StatusOr<bench::Channels> ParseChannels(const std::string& text) {
  const Strings parts = absl::StrSplit(text, 'x');
  bench::Channels channels;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &channels.in) &&
      absl::SimpleAtoi(parts[1], &channels.out) && channels.in >= 1 && channels.out >= 1 &&
      channels.in <= 65536 && channels.out <= 65536) {
    return channels;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--channels '", text, "': C_INxC_OUT is needed, each 1 .. 65536"));
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
  if (IsSceneSpec(input)) return ParseSceneSpec(input).status();
  std::error_code ignored;
  if (std::filesystem::exists(input, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(input, ": no such file"));
}

// Specs as given, checked, or all variants of the family.
template <typename Plugin>
absl::StatusOr<Strings> Specs(const Strings& given, const PluginFamily<Plugin>& family) {
  if (given.empty()) return family.Variants();
  Strings specs;
  for (const std::string& spec : given) {
    VOXCONV_ASSIGN_OR_RETURN(std::string canonical, family.Canonical(spec));
    specs.push_back(std::move(canonical));
  }
  return specs;
}

// What networks are run with: every network with every configuration and dtype.
absl::StatusOr<std::vector<bench::NetworkSpec>> ParseNetworks(const po::variables_map& values,
                                                              BackendKind backend,
                                                              const Registry& registry) {
  const bool cuda = backend == BackendKind::kCuda;
  Strings networks = values["network"].as<Strings>();
  if (networks.empty() && cuda) networks = {"minkunet42", "sparseresnet21"};
  Strings names = values["config"].as<Strings>();
  if (names.empty()) {
    const LayerChoice choice = DefaultLayerChoice(backend);
    names = {absl::StrCat(choice.mapping, "/", choice.dataflow, "/", choice.output_coords)};
  }
  Strings dtypes = values["dtype"].as<Strings>();
  if (dtypes.empty()) dtypes = {cuda ? "f16" : "f32"};
  std::vector<bench::NetworkSpec> specs;
  for (const std::string& network : networks) {
    VOXCONV_RETURN_IF_ERROR(MakeModel(network, {}).status());
    for (const std::string& name : names) {
      VOXCONV_ASSIGN_OR_RETURN(const auto configuration, harness::ResolveConfig(name, registry));
      for (const std::string& text : dtypes) {
        VOXCONV_ASSIGN_OR_RETURN(const DType dtype, ParseDType(text));
        for (const bool keep_maps : {false, true}) {
          specs.push_back(
              {network, name, configuration, dtype, keep_maps, !values["serial-maps"].as<bool>()});
        }
      }
    }
  }
  return specs;
}

absl::Status RegisterNetworks(const po::variables_map& values, const Registry& registry,
                              const LoadOptions& load, const std::vector<int>& threads,
                              const std::shared_ptr<bench::GateFailures>& failures) {
  BackendChoice choice{.device = values["device"].as<int>(), .threads = threads.front()};
  VOXCONV_ASSIGN_OR_RETURN(choice.kind, ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<bench::NetworkSpec> specs,
                           ParseNetworks(values, choice.kind, registry));
  if (specs.empty()) return absl::OkStatus();
  // No device is one line now, and not one a benchmark.
  VOXCONV_RETURN_IF_ERROR(MakeBackend(choice).status());
  for (const std::string& input : values["input"].as<Strings>()) {
    VOXCONV_RETURN_IF_ERROR(CheckInput(input, load));
    const auto scenario = std::make_shared<bench::NetworkScenario>(input, load, choice, registry);
    for (const bench::NetworkSpec& spec : specs) {
      bench::AddNetworkBenchmark(spec, scenario, failures);
    }
  }
  return absl::OkStatus();
}

absl::Status Register(const po::variables_map& values, const Registry& registry,
                      const std::shared_ptr<bench::GateFailures>& failures) {
  VOXCONV_ASSIGN_OR_RETURN(const Strings mappings,
                           Specs(values["mapping"].as<Strings>(), registry.mappings()));
  VOXCONV_ASSIGN_OR_RETURN(const Strings dataflows,
                           Specs(values["dataflow"].as<Strings>(), registry.dataflows()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int> threads,
                           ParseThreads(values["threads"].as<std::string>()));
  std::vector<bench::Channels> channels;
  for (const std::string& text : values["channels"].as<Strings>()) {
    VOXCONV_ASSIGN_OR_RETURN(channels.emplace_back(), ParseChannels(text));
  }
  LoadOptions load;
  VOXCONV_ASSIGN_OR_RETURN(load.voxelize.size,
                           ParseDouble3("voxel-size", values["voxel-size"].as<std::string>()));
  VOXCONV_RETURN_IF_ERROR(RegisterNetworks(values, registry, load, threads, failures));
  if (values["backend"].as<std::string>() != "cpu") return absl::OkStatus();
  for (int count : threads) bench::AddCopyBenchmark(count);
  for (const std::string& input : values["input"].as<Strings>()) {
    VOXCONV_RETURN_IF_ERROR(CheckInput(input, load));
    for (int count : threads) {
      const auto scenario = std::make_shared<bench::Scenario>(input, load, count, registry);
      for (const std::string& spec : mappings) bench::AddMapBenchmark(spec, scenario, failures);
      for (const bench::Channels& shape : channels) {
        bench::AddSgemmBenchmark(shape, scenario);
        for (const std::string& spec : dataflows) {
          bench::AddConvBenchmark(spec, shape, scenario, failures);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBench(const std::vector<std::string>& args) {
  Strings ours, theirs = {"voxconv bench"};
  for (const std::string& arg : args) {
    (absl::StartsWith(arg, "--benchmark") ? theirs : ours).push_back(arg);
  }
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("bench [OPTIONS] [--benchmark_...]", BenchOptions(), {}, ours));
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(FillRegistry(values["plugin"].as<Strings>(), registry));

  std::vector<char*> argv;
  for (std::string& arg : theirs) argv.push_back(arg.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(argv[1], " is no flag of Google Benchmark (see --help)"));
  }
  benchmark::AddCustomContext("voxconv_commit", harness::GetBuildInfo().commit);
  const auto failures = std::make_shared<bench::GateFailures>();
  VOXCONV_RETURN_IF_ERROR(Register(values, registry, failures));
  const size_t run = benchmark::RunSpecifiedBenchmarks();
  // They hold references to the registry.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
  if (run == 0) return absl::NotFoundError("no benchmark matches --benchmark_filter");
  if (failures->count == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(failures->count, " benchmarks gave wrong results and were not timed"));
}

}  // namespace voxconv::cli
