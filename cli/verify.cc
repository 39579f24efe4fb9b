// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/command_child.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/cli/verify_child.h"
#include "voxconv/cli/verify_report.h"
#include "voxconv/experiments/runner/shard.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/models.h"
#include "voxconv/verify/crash_report.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/network_cases.h"
#include "voxconv/verify/selection.h"

namespace voxconv::cli {
namespace {

// Far more than the slowest case takes on a slow machine.
constexpr double kDefaultCaseSeconds = 600;

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
    if (args[i] == "--quick" || args[i] == "--json") continue;
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
       "run only the cases of this mapping; NAME means all variants, NAME:OPTION=VALUE one "
       "variant, "
       "and NAME: the default variant")  //
      ("dataflow", po::value<std::string>()->default_value(""),
       "run only the cases of this dataflow; written as --mapping")  //
      ("filter", po::value<std::string>()->default_value(""),
       "run the cases whose id contains this text; * matches anything")  //
      ("quick", po::bool_switch(), "run about one case in twenty")       //
      ("shard", po::value<std::string>()->default_value("1/1"),
       "I/N: run the I-th of these cases, the (I + N)-th and so on; N processes share the cases "
       "this way")  //
      ("case-seconds", po::value<double>()->default_value(kDefaultCaseSeconds),
       "longest time of a case, in seconds; a case that takes longer fails, and the others go on; "
       "with this option, and where plugins are loaded, the cases run in a child process")  //
      ("show-failures", po::value<uint64_t>()->default_value(20),
       "kinds of failures to show, each by its first case; 0: all")           //
      ("list", po::bool_switch(), "print the ids of the cases and run none")  //
      ("support", po::bool_switch(),
       "print what plugins refuse, with their reasons, and run no case; with --mapping or "
       "--dataflow, what these refuse");
  return options;
}

po::options_description VerifyNetworkOptions() {
  po::options_description options("To verify a whole network on --input instead of the matrix");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value(""),
       absl::StrCat("the network: ", absl::StrJoin(ModelNames(), ", ")).c_str());
  AddShapeOptions(options);
  options.add_options()  //
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
                                 .crop_voxels = values["crop-voxels"].as<int64_t>()};
  VOXCONV_ASSIGN_OR_RETURN(request.model, ParseModelOptions(values));
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
  VOXCONV_ASSIGN_OR_RETURN(request.precision,
                           ParseNetworkDtype(values, environment.backend->kind()));
  VOXCONV_ASSIGN_OR_RETURN(request.cloud, LoadInput(values));
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph, MakeModel(request.network, request.model));
  PrintChannels(request.cloud, graph.in_channels());
  const std::string& input = values["input"].as<std::string>();
  request.input =
      absl::StartsWith(input, "scene:") ? input : std::filesystem::path(input).filename().string();
  return verify::MakeNetworkCases(environment, request, selection);
}

// The matrix brings its own scenes, dtypes and widths.
absl::Status CheckNoNetworkOptions(const po::variables_map& values) {
  std::vector<std::string> names = {"width", "grid", "dtype", "crop-voxels"};
  const po::options_description input = InputOptions();
  for (const auto& option : input.options()) names.push_back(option->long_name());
  for (const std::string& name : names) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": has no meaning without --network"));
  }
  return absl::OkStatus();
}

// --mapping and --dataflow.
absl::Status SelectPlugins(const po::variables_map& values, const Registry& registry,
                           BackendKind kind, verify::Selection& selection) {
  VOXCONV_ASSIGN_OR_RETURN(
      selection.mapping,
      verify::SelectPlugin(values["mapping"].as<std::string>(), registry.mappings(), kind));
  VOXCONV_ASSIGN_OR_RETURN(
      selection.dataflow,
      verify::SelectPlugin(values["dataflow"].as<std::string>(), registry.dataflows(), kind));
  return absl::OkStatus();
}

// The table has all cases of the plugins that --mapping and --dataflow name.
absl::Status CheckSupportAlone(const po::variables_map& values) {
  std::vector<std::string> names = {"device", "threads", "memory-limit-mib", "network"};
  const po::options_description which = VerifyOptions();
  for (const auto& option : which.options()) names.push_back(option->long_name());
  for (const std::string& name : names) {
    if (name == "support" || name == "mapping" || name == "dataflow") continue;
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": has no meaning together with --support"));
  }
  return absl::OkStatus();
}

// Asks the plugins alone: no device is needed.
absl::Status PrintSupport(const po::variables_map& values, BackendKind kind) {
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(RegisterPlugins(values, registry));
  verify::Selection selection;
  VOXCONV_RETURN_IF_ERROR(SelectPlugins(values, registry, kind, selection));
  for (const std::string& line : verify::SupportTable(registry, kind, selection)) {
    std::cout << line << "\n";
  }
  return absl::OkStatus();
}

// Of the matrix, or of a whole network.
absl::StatusOr<std::vector<verify::Case>> MakeSelectedCases(const po::variables_map& values,
                                                            verify::Environment& environment) {
  const Registry& registry = *environment.registry;
  const BackendKind kind = environment.backend->kind();
  verify::Selection selection{.filter = values["filter"].as<std::string>(),
                              .quick = values["quick"].as<bool>()};
  VOXCONV_RETURN_IF_ERROR(SelectPlugins(values, registry, kind, selection));
  std::vector<verify::Case> cases;
  if (values["network"].as<std::string>().empty()) {
    VOXCONV_RETURN_IF_ERROR(CheckNoNetworkOptions(values));
    cases = verify::MakeCases(environment, selection);
  } else {
    VOXCONV_ASSIGN_OR_RETURN(cases, MakeNetworkCases(values, environment, selection));
  }
  if (!cases.empty()) return cases;
  std::vector<std::string> given;
  for (const char* name : {"mapping", "dataflow", "filter"}) {
    const std::string& text = values[name].as<std::string>();
    if (!text.empty()) given.push_back(absl::StrCat("--", name, " ", text));
  }
  return absl::NotFoundError(
      absl::StrCat("no case matches ", absl::StrJoin(given, " and "), "; --list prints the cases"));
}

absl::Status RunCases(const std::vector<verify::Case>& cases, const std::string& device,
                      VerifyReport& report) {
  const measure::Timer timer;
  {
    Progress progress("verify", cases.size());
    verify::CrashReport crash(report.rerun());
    for (size_t i = 0; i < cases.size(); ++i) {
      crash.SetCase(cases[i].id);
      report.Add(cases[i].id, verify::RunCase(cases[i]));
      progress.Step(i + 1);
    }
  }
  return report.Finish(device, cases.size(), timer.Seconds());
}

// Whether the code of others runs, or a limit was asked for.
bool RunsInChildren(const std::vector<std::string>& args, const po::variables_map& values) {
  return LoadsPlugins(args) || !values["case-seconds"].defaulted();
}

absl::StatusOr<double> CaseSecondsOf(const po::variables_map& values) {
  constexpr double kMost = 1e6;
  const double seconds = values["case-seconds"].as<double>();
  if (seconds > 0 && seconds <= kMost) return seconds;
  return absl::InvalidArgumentError(
      absl::StrCat("--case-seconds ", seconds, ": allowed are numbers above 0, up to ", kMost));
}

// Writes the result for programs, if cases have run, and gives their status.
absl::Status Told(const absl::Status& status, const po::variables_map& values,
                  const VerifyReport& report, StandardOutput& output) {
  if (!report.result().is_null()) {
    VOXCONV_RETURN_IF_ERROR(output.WriteResult(values, report.result()));
  }
  return status;
}

// What this process does with its cases.
enum class Role { kCommand, kChild };

absl::Status RunWithArguments(const std::vector<std::string>& args, int64_t from, Role role) {
  po::options_description options = VerifyOptions();
  options.add(JsonOption()).add(VerifyNetworkOptions()).add(InputOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("verify [OPTIONS]", options, {}, args));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(const Shard shard,
                           ParseShard("--shard", values["shard"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(const double case_seconds, CaseSecondsOf(values));
  for (const char* name : {"list", "support"}) {
    if (!values["json"].as<bool>() || !values[name].as<bool>()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--json: has no meaning together with --", name, ", which runs no case"));
  }
  if (values["support"].as<bool>()) {
    VOXCONV_RETURN_IF_ERROR(CheckSupportAlone(values));
    return PrintSupport(values, kind);
  }
  StandardOutput output(values);
  const bool lists = values["list"].as<bool>();
  VerifyReport report(ReproPrefix(args), values["show-failures"].as<uint64_t>());
  if (role != Role::kChild && !lists && RunsInChildren(args, values)) {
    return Told(VerifyInChildren(args, case_seconds, report), values, report, output);
  }
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  const int device = values["device"].as<int>();
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> serial,
                           MakeBackend({.kind = kind, .device = device, .threads = 1}));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> parallel,
                           MakeBackend({.kind = kind, .device = device, .threads = 2}));
  verify::Environment environment{
      &session->registry(), &session->backend(), serial.get(), parallel.get(), {}};
  VOXCONV_ASSIGN_OR_RETURN(std::vector<verify::Case> cases, MakeSelectedCases(values, environment));
  cases = shard.Of(std::move(cases));
  const std::string name = session->backend().DeviceName();
  if (role == Role::kChild) {
    RunCasesInChild(cases, from, name);
    return absl::OkStatus();
  }
  if (!lists) return Told(RunCases(cases, name, report), values, report, output);
  for (const verify::Case& test : cases) std::cout << test.id << "\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status RunVerify(const std::vector<std::string>& args) {
  int64_t from = 0;
  if (args.empty() || !absl::StartsWith(args[0], kFromCaseArgument) ||
      !absl::SimpleAtoi(args[0].substr(sizeof(kFromCaseArgument) - 1), &from)) {
    return RunWithArguments(args, 0, Role::kCommand);
  }
  const absl::Status status = RunWithArguments({args.begin() + 1, args.end()}, from, Role::kChild);
  if (!status.ok()) TellError(status);
  return absl::OkStatus();
}

}  // namespace voxconv::cli
