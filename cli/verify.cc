// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/session.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/models.h"
#include "voxconv/verify/crash_report.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/network_cases.h"
#include "voxconv/verify/selection.h"

namespace voxconv::cli {
namespace {

struct Tally {
  int64_t passed = 0, failed = 0, skipped = 0;
  std::map<std::string, int64_t> skip_reasons;
};

void Report(const verify::Case& test, const verify::Outcome& outcome,
            const std::string& repro_prefix, Tally& tally) {
  switch (outcome.verdict) {
    case verify::Verdict::kPassed:
      ++tally.passed;
      break;
    case verify::Verdict::kSkipped:
      ++tally.skipped;
      ++tally.skip_reasons[outcome.detail];
      break;
    case verify::Verdict::kFailed:
      ++tally.failed;
      std::cout << "FAILED " << test.id << ": " << outcome.detail << "\n  " << repro_prefix << "'"
                << test.id << "'\n";
      break;
  }
}

// An argument as a shell takes it.
std::string Quoted(const std::string& argument) {
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("_-./:=,", c);
  };
  if (!argument.empty() && std::all_of(argument.begin(), argument.end(), is_plain)) return argument;
  return absl::StrCat("'", absl::StrReplaceAll(argument, {{"'", "'\\''"}}), "'");
}

// This command with all but what selects cases, and a filter to come.
std::string ReproPrefix(const std::vector<std::string>& args) {
  std::string prefix = "voxconv verify";
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--quick") continue;
    const std::string name = args[i].substr(0, args[i].find('='));
    if (name == "--filter" || name == "--shard" || name == "--mapping" || name == "--dataflow") {
      if (name == args[i]) ++i;  // its value is the next word
      continue;
    }
    absl::StrAppend(&prefix, " ", Quoted(args[i]));
  }
  return absl::StrCat(prefix, " --filter ");
}

po::options_description VerifyOptions() {
  po::options_description options("Which cases");
  options.add_options()  //
      ("mapping", po::value<std::string>()->default_value(""),
       "run the cases of this mapping alone; a name stands for all variants, a spec such as "
       "NAME:OPTION=VALUE for one, and NAME: for the default one")  //
      ("dataflow", po::value<std::string>()->default_value(""),
       "run the cases of this dataflow alone; written as --mapping")  //
      ("filter", po::value<std::string>()->default_value(""),
       "run the cases whose id contains this text; * matches anything")  //
      ("quick", po::bool_switch(), "run about one case in twenty")       //
      ("shard", po::value<std::string>()->default_value("1/1"),
       "I/N: run the I-th of these cases, the (I + N)-th and so on; N processes share the cases "
       "this way")                                                            //
      ("list", po::bool_switch(), "print the ids of the cases and run none")  //
      ("support", po::bool_switch(),
       "print what plugins refuse, with their reasons, and run no case");
  return options;
}

po::options_description VerifyNetworkOptions() {
  po::options_description options("To verify a whole network on --input instead of the matrix");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value(""),
       absl::StrCat("the network: ", absl::StrJoin(ModelNames(), ", ")).c_str())  //
      ("width", po::value<double>()->default_value(1.0),
       "factor on every channel count; all counts must stay whole numbers")  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16")  //
      ("crop-voxels", po::value<int64_t>()->default_value(1000),
       "number of voxels from the middle of the input that the fp64 reference computes");
  return options;
}

absl::StatusOr<std::vector<verify::Case>> MakeNetworkCases(const po::variables_map& values,
                                                           verify::Environment& environment,
                                                           const verify::Selection& selection) {
  verify::NetworkRequest request{.network = values["network"].as<std::string>(),
                                 .width = values["width"].as<double>(),
                                 .crop_voxels = values["crop-voxels"].as<int64_t>()};
  constexpr int64_t kMaxCropVoxels = 100000;  // the reference compares all pairs
  if (request.crop_voxels < 1 || request.crop_voxels > kMaxCropVoxels) {
    return absl::InvalidArgumentError(
        absl::StrCat("--crop-voxels ", request.crop_voxels, ": allowed are 1 .. ", kMaxCropVoxels));
  }
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(request.on_cpu, defaults.LayersOn(BackendKind::kCpu));
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice layers,
                           defaults.LayersOn(environment.backend->kind()));
  request.output_coords = layers.output_coords;
  VOXCONV_ASSIGN_OR_RETURN(request.precision, ParsePrecision(values["dtype"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(request.cloud, LoadInput(values));
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph,
                           MakeModel(request.network, {.width = request.width}));
  PrintChannels(request.cloud, graph.in_channels());
  const std::string& input = values["input"].as<std::string>();
  request.input =
      absl::StartsWith(input, "scene:") ? input : std::filesystem::path(input).filename().string();
  return verify::MakeNetworkCases(environment, request, selection);
}

// The matrix brings its own scenes, dtypes and widths.
absl::Status CheckNoNetworkOptions(const po::variables_map& values) {
  std::vector<std::string> names = {"width", "dtype", "crop-voxels"};
  const po::options_description input = InputOptions();
  for (const auto& option : input.options()) names.push_back(option->long_name());
  for (const std::string& name : names) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": has no meaning without --network"));
  }
  return absl::OkStatus();
}

// "I/N" as I - 1 and N.
absl::StatusOr<std::pair<int, int>> ParseShard(const std::string& text) {
  constexpr int kMaxShards = 100000;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  int index = 0, count = 0;
  if (absl::SimpleAtoi(parts.first, &index) && absl::SimpleAtoi(parts.second, &count) &&
      index >= 1 && index <= count && count <= kMaxShards) {
    return std::pair(index - 1, count);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--shard ", text, ": allowed are I/N with 1 <= I <= N <= ", kMaxShards));
}

// Every `count`-th of the cases from `index` on; neighbours are much alike, so shards are, too.
std::vector<verify::Case> Shard(std::vector<verify::Case> cases, int index, int count) {
  std::vector<verify::Case> shard;
  for (size_t i = index; i < cases.size(); i += count) shard.push_back(std::move(cases[i]));
  return shard;
}

// Asks the plugins alone: no device is needed.
absl::Status PrintSupport(const po::variables_map& values, BackendKind kind) {
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(
      RegisterAllPlugins(values["plugin"].as<std::vector<std::string>>(), registry));
  for (const std::string& line : verify::SupportTable(registry, kind)) std::cout << line << "\n";
  return absl::OkStatus();
}

// Of the matrix, or of a whole network.
absl::StatusOr<std::vector<verify::Case>> MakeSelectedCases(const po::variables_map& values,
                                                            verify::Environment& environment) {
  const Registry& registry = *environment.registry;
  const BackendKind kind = environment.backend->kind();
  verify::Selection selection{.filter = values["filter"].as<std::string>(),
                              .quick = values["quick"].as<bool>()};
  VOXCONV_ASSIGN_OR_RETURN(
      selection.mapping,
      verify::SelectPlugin(values["mapping"].as<std::string>(), registry.mappings(), kind));
  VOXCONV_ASSIGN_OR_RETURN(
      selection.dataflow,
      verify::SelectPlugin(values["dataflow"].as<std::string>(), registry.dataflows(), kind));
  std::vector<verify::Case> cases;
  if (values["network"].as<std::string>().empty()) {
    VOXCONV_RETURN_IF_ERROR(CheckNoNetworkOptions(values));
    cases = verify::MakeCases(environment, selection);
  } else {
    VOXCONV_ASSIGN_OR_RETURN(cases, MakeNetworkCases(values, environment, selection));
  }
  if (!cases.empty()) return cases;
  return absl::NotFoundError("no case matches --mapping, --dataflow and --filter; see --list");
}

absl::Status RunCases(const std::vector<verify::Case>& cases, const std::string& repro,
                      const std::string& device) {
  Tally tally;
  const measure::Timer timer;
  {
    Progress progress("verify", cases.size());
    verify::CrashReport crash;
    for (size_t i = 0; i < cases.size(); ++i) {
      std::cout << std::flush;  // a crash must not take along what was said
      crash.SetCase(cases[i].id);
      Report(cases[i], verify::RunCase(cases[i]), repro, tally);
      progress.Step(i + 1);
    }
  }
  for (const auto& [reason, count] : tally.skip_reasons) {
    std::cout << "skipped " << count << ": " << reason << "\n";
  }
  std::cout << absl::StrFormat("verify on %s: %d cases in %.1f s\n", device, cases.size(),
                               timer.Seconds());
  std::cout << absl::StrFormat("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed,
                               tally.skipped)
            << std::flush;
  if (tally.failed == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(tally.failed, " of ", cases.size(), " cases failed"));
}

}  // namespace

absl::Status RunVerify(const std::vector<std::string>& args) {
  po::options_description options = VerifyOptions();
  options.add(VerifyNetworkOptions()).add(InputOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("verify [OPTIONS]", options, {}, args));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(const auto shard, ParseShard(values["shard"].as<std::string>()));
  if (values["support"].as<bool>()) return PrintSupport(values, kind);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  const int device = values["device"].as<int>();
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> serial,
                           MakeBackend({.kind = kind, .device = device, .threads = 1}));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> parallel,
                           MakeBackend({.kind = kind, .device = device, .threads = 2}));
  verify::Environment environment{&session->registry(), &session->backend(), serial.get(),
                                  parallel.get()};
  VOXCONV_ASSIGN_OR_RETURN(std::vector<verify::Case> cases, MakeSelectedCases(values, environment));
  cases = Shard(std::move(cases), shard.first, shard.second);
  if (!values["list"].as<bool>()) {
    return RunCases(cases, ReproPrefix(args), session->backend().DeviceName());
  }
  for (const verify::Case& test : cases) std::cout << test.id << "\n";
  return absl::OkStatus();
}

}  // namespace voxconv::cli
