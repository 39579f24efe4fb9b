// SPDX-License-Identifier: Apache-2.0
// `voxconv experiment`: a paper's table or figure, or a user's own comparison, from a file.
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/ab_rounds.h"
#include "voxconv/cli/cache_options.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/experiment_merge.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/self_command.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/cells.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/experiments/runner/hardware.h"
#include "voxconv/experiments/runner/runner.h"
#include "voxconv/experiments/runner/shard.h"
#include "voxconv/experiments/runner/subprocess.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/scene_spec.h"
#include "voxconv/measure/interrupt.h"
#include "voxconv/measure/paired.h"

namespace voxconv::cli {
namespace {

using experiment::Definition;
using experiment::InputSource;
using Texts = std::vector<std::string>;

constexpr int kQuickPairs = 2;
// For identical sides, the interval of five rounds holds 1 in at least 93 of 100 cells.
constexpr int kRounds = 5;

po::options_description ExperimentOptions() {
  po::options_description options("Experiments");
  options.add_options()  //
      ("name", po::value<Texts>()->default_value({}, ""),
       "an experiment such as minuet/fig16, a pattern such as 'minuet/*', or FILE.json; may be "
       "repeated")                                                                                //
      ("list", po::bool_switch(), "print the experiments; with names, print the cells of these")  //
      ("out", po::value<std::string>(),
       "directory of the result files, one an experiment; a cell that is there already does not "
       "run "
       "again")  //
      ("quick", po::bool_switch(),
       "run one small cell a configuration with 2 pairs; this shows that all works and is no "
       "evidence")  //
      ("pairs", po::value<int>(),
       "number of measured pairs of a round, 20 or more in all rounds together; fewer only with "
       "--quick; default 20")  //
      ("rounds", po::value<int>(),
       "run all of it this often, each time in a process of its own; the report's intervals then "
       "cover the differences between the rounds; default 5, and 1 with --quick")  //
      ("cell", po::value<std::string>()->default_value(""),
       "run only the cells whose title, as --list prints it, contains this text or matches it as a "
       "pattern with * and ?; the report counts the others as missing")  //
      ("shard", po::value<std::string>()->default_value("1/1"),
       "I/N: run the I-th of these cells, the (I + N)-th ...; N processes with one I each run all "
       "of them, into one --out or into one each")  //
      ("check-only", po::bool_switch(),
       "verify the cells and time nothing; later runs of the same program with the same --out do "
       "not verify them again")  //
      ("merge", po::value<Texts>()->multitoken(),
       "put the results of these directories, such as those of shards, into --out; a cell that "
       "several have is kept once")                                                           //
      ("warmup", po::value<int>(), "runs of each side before the measured pairs; default 2")  //
      ("counters", po::bool_switch(),
       "CUDA: also read the L2 hit ratio, DRAM bytes and utilisation of each side, by one more run "
       "under ncu")  //
      ("seed", po::value<uint64_t>()->default_value(1),
       "seed of the weights and of a layer's features");
  AddCacheOptions(options);
  return options;
}

// What this program gives to itself.
po::options_description HiddenOptions() {
  po::options_description options;
  options.add_options()  //
      ("round", po::value<int>()->default_value(1),
       "the number of this round; --rounds sets it")  //
      ("of-rounds", po::value<int>()->default_value(1),
       "how many rounds there are; --rounds sets it")  //
      ("profiled-side", po::value<std::string>(),
       "CELL:a|b:EXPERIMENT: run one side of one cell and measure nothing; --counters sets it");
  return options;
}

po::options_description GivenInputOptions() {
  po::options_description options("Inputs, in place of the experiment's scenes");
  options.add_options()  //
      ("input", po::value<Texts>()->default_value({}, ""),
       "a point cloud's path, or scene:NAME?key=value&...; may be repeated")  //
      ("inputs", po::value<std::string>(),
       "a JSON file with an array of inputs, written as the key \"inputs\" of an experiment")  //
      ("voxel-size", po::value<std::string>()->default_value("0.05"),
       "of --input: edge of a voxel in the cloud's unit; one or three values")  //
      ("range", po::value<std::string>()->default_value(""),
       absl::StrCat("of --input: ", kRangeHelp).c_str())  //
      ("order", po::value<std::string>()->default_value("scan"),
       absl::StrCat("of --input: ", kOrderHelp,
                    "; default: those of the experiment, which are scan where it has none")
           .c_str())  //
      ("fields", po::value<std::string>()->default_value(""),
       "of --input: columns of a raw file")  //
      ("dtype-in", po::value<std::string>()->default_value(""),
       "of --input: number type of a raw file: f16, f32 or f64")  //
      ("like", po::value<std::string>()->default_value(""),
       "of --input: the kind of data, by which published figures name it: outdoor-64, outdoor-32, "
       "indoor or object");
  return options;
}

// What is said of --input, or could be.
absl::Status CheckInputOptions(const po::variables_map& values) {
  for (const char* name : {"voxel-size", "range", "order", "fields", "dtype-in", "like"}) {
    if (values[name].defaulted() || !values["input"].as<Texts>().empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", name, " has no meaning without --input"));
  }
  if (!values["range"].defaulted()) {
    VOXCONV_RETURN_IF_ERROR(ParseRange("--range", values["range"].as<std::string>()).status());
  }
  const Texts& kinds = experiment::InputKinds();
  const std::string& like = values["like"].as<std::string>();
  if (like.empty() || std::find(kinds.begin(), kinds.end(), like) != kinds.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--like '", like, "': allowed are ", absl::StrJoin(kinds, ", ")));
}

// The last `parts` parts of a path.
std::string LastParts(const std::string& path, int parts) {
  size_t begin = path.size();
  for (int i = 0; i < parts && begin != std::string::npos && begin != 0; ++i) {
    begin = path.rfind('/', begin - 1);
  }
  return begin == std::string::npos ? path : path.substr(begin + (path[begin] == '/' ? 1 : 0));
}

// A file is known by its name; the path belongs to the machine. Files of one name are known by as
// much of their paths as tells them apart.
std::string NameOf(const std::string& input, const Texts& all) {
  if (IsSceneSpec(input)) return input;
  const auto depth = static_cast<int>(std::count(input.begin(), input.end(), '/')) + 1;
  for (int parts = 1; parts < depth; ++parts) {
    const std::string name = LastParts(input, parts);
    const bool alone = std::none_of(all.begin(), all.end(), [&](const std::string& other) {
      return other != input && LastParts(other, parts) == name;
    });
    if (alone) return name;
  }
  return input;
}

// What cells would find out one by one, and what a quick run, which has inputs of its own, would
// not find out at all.
absl::Status CheckInputs(const Definition& definition,
                         const experiment::CellOptions& cell_options) {
  std::vector<InputSource> inputs = definition.quick_inputs;
  inputs.insert(inputs.end(), cell_options.given.begin(), cell_options.given.end());
  const bool replaced = !cell_options.given.empty() && definition.given_inputs == "replace";
  if (!replaced) {
    inputs.insert(inputs.end(), definition.inputs.begin(), definition.inputs.end());
  }
  for (const InputSource& input : inputs) {
    std::vector<std::string> samples = input.batch;
    samples.insert(samples.begin(), input.input);
    for (const std::string& sample : samples) {
      absl::Status status;
      std::error_code ignored;
      if (IsSceneSpec(sample)) {
        status = ParseSceneSpec(sample).status();
      } else if (!std::filesystem::exists(sample, ignored)) {
        status = absl::NotFoundError("no such file");
      }
      if (!status.ok()) return StatusAt(absl::StrCat("input '", sample, "'"), status);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<InputSource>> GivenInputs(const po::variables_map& values) {
  VOXCONV_RETURN_IF_ERROR(CheckInputOptions(values));
  std::vector<InputSource> inputs;
  for (const std::string& input : values["input"].as<Texts>()) {
    InputSource source;
    source.input = input;
    source.name = NameOf(input, values["input"].as<Texts>());
    source.voxel_size = values["voxel-size"].as<std::string>();
    source.range = values["range"].as<std::string>();
    if (!values["order"].defaulted()) {
      VOXCONV_ASSIGN_OR_RETURN(source.order, ParseOrderOption(values));
    }
    source.like = values["like"].as<std::string>();
    source.read.fields = values["fields"].as<std::string>();
    source.read.dtype_in = values["dtype-in"].as<std::string>();
    inputs.push_back(std::move(source));
  }
  if (values.count("inputs") == 0) return inputs;
  const std::string path = values["inputs"].as<std::string>();
  const absl::StatusOr<std::string> text = ReadFileBytes(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("--inputs ", text.status().message()));
  }
  absl::StatusOr<std::vector<InputSource>> more = experiment::ParseInputs(*text);
  if (!more.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--inputs ", path, ": ", more.status().message()));
  }
  inputs.insert(inputs.end(), more->begin(), more->end());
  return inputs;
}

absl::StatusOr<std::vector<Definition>> Select(const Texts& patterns) {
  std::vector<Definition> selected;
  for (const std::string& pattern : patterns) {
    Texts names;
    if (pattern.find_first_of("*?[") == std::string::npos) {
      names = {pattern};
    } else {
      for (const std::string& name : experiment::ListDefinitions()) {
        if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) names.push_back(name);
      }
    }
    if (names.empty()) {
      return absl::NotFoundError(absl::StrCat("no experiment is named like '", pattern,
                                              "'; there are ",
                                              absl::StrJoin(experiment::ListDefinitions(), ", ")));
    }
    for (const std::string& name : names) {
      VOXCONV_ASSIGN_OR_RETURN(Definition definition, experiment::LoadDefinition(name));
      selected.push_back(std::move(definition));
    }
  }
  return selected;
}

// A pattern that names no cell is a mistake.
absl::Status CheckCellPattern(const std::string& pattern,
                              const std::vector<Definition>& definitions,
                              const experiment::CellOptions& cell_options) {
  if (pattern.empty()) return absl::OkStatus();
  for (const Definition& definition : definitions) {
    for (const auto& cell : experiment::ExpandCells(definition, cell_options)) {
      if (experiment::IsCellNamed(cell, pattern)) return absl::OkStatus();
    }
  }
  return absl::NotFoundError(
      absl::StrCat("--cell '", pattern, "': no cell has such a title; --list prints the titles"));
}

absl::Status PrintList() {
  std::vector<std::vector<std::string>> table = {{"experiment", "backends", "about"}};
  VOXCONV_RETURN_IF_ERROR(experiment::CheckDirectory());
  absl::Status broken;  // the first, which must not hide the others
  for (const std::string& name : experiment::ListDefinitions()) {
    const absl::StatusOr<Definition> definition = experiment::LoadDefinition(name);
    if (!definition.ok()) {
      broken.Update(definition.status());
      table.push_back({name, "-", "cannot be read"});
      continue;
    }
    const Texts& backends = definition->backends;
    table.push_back(
        {name, backends.empty() ? "cpu, cuda" : absl::StrJoin(backends, ", "), definition->title});
  }
  std::cout << FormatTable(table);
  return broken;
}

// Fills in ncu and the command that it is to run.
absl::Status ParseCounters(const po::variables_map& values, const std::vector<std::string>& args,
                           experiment::RunnerOptions& options) {
  if (!values["counters"].as<bool>() || values.count("profiled-side") != 0) {
    return absl::OkStatus();
  }
  if (values["backend"].as<std::string>() != "cuda") {
    return absl::InvalidArgumentError("--counters: only --backend cuda has hardware counters");
  }
  VOXCONV_ASSIGN_OR_RETURN(options.ncu, experiment::FindNcu());
  options.command = SelfCommand("experiment", args);
  return absl::OkStatus();
}

// Each round a process of its own: a program's memory, and the core that it runs on, set its times
// for as long as it lives.
absl::Status RunRounds(int rounds, const std::vector<std::string>& args) {
  const measure::InterruptGuard interrupt;
  for (int round = 1; round <= rounds; ++round) {
    std::cout << "round " << round << " of " << rounds << std::endl;
    std::vector<std::string> of_round = WithoutOption("rounds", args);
    of_round.insert(of_round.begin(),
                    {absl::StrCat("--round=", round), absl::StrCat("--of-rounds=", rounds)});
    VOXCONV_ASSIGN_OR_RETURN(
        const experiment::ProgramResult result,
        experiment::RunProgramInterruptibly(SelfCommand("experiment", of_round), interrupt));
    if (interrupt.interrupted()) {
      return absl::AbortedError("interrupted; the same command continues where this one stopped");
    }
    constexpr int kNotItsOwnEnd = 127;  // not started, or ended by a signal: it printed no reason
    if (result.exit_status >= kNotItsOwnEnd) {
      return absl::InternalError(absl::StrCat("round ", round, " did not end by itself"));
    }
    if (result.exit_status != 0) return FailureAlreadyPrinted();
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RoundsOf(const po::variables_map& values) {
  const bool is_part = !values["round"].defaulted() || values.count("profiled-side") != 0;
  if (values["check-only"].as<bool>()) {
    if (values.count("rounds") == 0 && !is_part) return 1;
    return absl::InvalidArgumentError("--check-only: has no meaning together with --rounds");
  }
  if (values.count("rounds") == 0) return values["quick"].as<bool>() || is_part ? 1 : kRounds;
  const int rounds = values["rounds"].as<int>();
  if (rounds < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds ", rounds, ": allowed are 1 and more"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckMostRounds(rounds));
  if (rounds > 1 && is_part) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--rounds ", rounds, ": has no meaning together with --round or --profiled-side"));
  }
  return rounds;
}

absl::StatusOr<experiment::RunnerOptions> ParseRunnerOptions(const po::variables_map& values,
                                                             const std::vector<std::string>& args,
                                                             int rounds) {
  if (values.count("out") == 0) {
    return absl::InvalidArgumentError("--out is missing: a directory for the results");
  }
  experiment::RunnerOptions options;
  options.directory = values["out"].as<std::string>();
  VOXCONV_RETURN_IF_ERROR(CheckFolder("--out", options.directory));
  options.quick = values["quick"].as<bool>();
  options.check_only = values["check-only"].as<bool>();
  options.pairs = options.quick ? kQuickPairs : measure::kMinPairs;
  options.warmup = options.quick ? 1 : 2;
  if (values.count("pairs") != 0) options.pairs = values["pairs"].as<int>();
  if (values.count("warmup") != 0) options.warmup = values["warmup"].as<int>();
  options.cell_pattern = values["cell"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(options.shard, ParseShard("--shard", values["shard"].as<std::string>()));
  options.seed = values["seed"].as<uint64_t>();
  options.round = values["round"].as<int>();
  options.memory_limit_mib = values["memory-limit-mib"].as<int64_t>();
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind backend,
                           ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(options.cache, ParseCacheOptions(values, backend));
  if (options.round < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--round ", options.round, ": allowed are 1 and more"));
  }
  measure::PairedOptions paired;
  paired.pairs = options.pairs;
  paired.warmup = options.warmup;
  paired.quick = options.quick;
  paired.rounds = options.of_rounds = std::max(rounds, values["of-rounds"].as<int>());
  VOXCONV_RETURN_IF_ERROR(measure::CheckOptions(paired));
  VOXCONV_RETURN_IF_ERROR(ParseCounters(values, args, options));
  return options;
}

absl::StatusOr<experiment::Tally> RunOne(const Definition& definition,
                                         const experiment::CellOptions& cell_options,
                                         const experiment::RunnerOptions& quiet_options,
                                         Session& session) {
  const std::vector<experiment::Cell> cells = experiment::ExpandCells(definition, cell_options);
  std::cout << definition.name << ": " << definition.title << "\n";
  if (!cell_options.given.empty() && definition.given_inputs == "none") {
    std::cout << "this experiment has inputs of its own and does not use those given\n";
  }
  if (cells.empty()) {
    std::cout << "nothing to run on " << ToString(cell_options.backend) << "\n";
    return experiment::Tally{};
  }
  const absl::Status inputs = CheckInputs(definition, cell_options);
  if (!inputs.ok()) return StatusAt(definition.name, inputs);
  experiment::RunnerOptions options = quiet_options;
  std::unique_ptr<Progress> progress;
  std::string label;
  options.progress = [&](const std::string& cell, int64_t done, int64_t total) {
    if (label != cell) progress = std::make_unique<Progress>(cell, total);
    label = cell;
    progress->Step(done);
  };
  options.say = [&](const std::string& line) {
    progress = nullptr;  // its line is taken away first
    label.clear();
    std::cout << line << std::endl;
  };
  absl::StatusOr<experiment::Tally> tally =
      experiment::RunExperiment(definition, cells, options, session.registry(), session.Context());
  if (!tally.ok()) {
    return StatusAt(definition.name, tally.status());
  }
  std::cout << tally->measured << (options.check_only ? " cells checked, " : " cells measured, ")
            << tally->refused << " refused, " << tally->failed << " failed, "
            << tally->finished_before << " finished before; the results are in "
            << experiment::ResultPath(quiet_options.directory, definition.name) << "\n";
  return tally;
}

absl::Status RunForProfiler(const std::string& text, const std::vector<Definition>& definitions,
                            const experiment::CellOptions& cell_options,
                            const experiment::RunnerOptions& options, Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(const auto side, experiment::ParseProfiledSide(text));
  for (const Definition& definition : definitions) {
    if (definition.name != side.experiment) continue;
    return experiment::RunProfiledSide(definition,
                                       experiment::ExpandCells(definition, cell_options), side,
                                       options, session.registry(), session.Context());
  }
  return absl::NotFoundError(
      absl::StrCat("--profiled-side: experiment '", side.experiment, "' is not among those named"));
}

// The cells that --cell and --shard leave.
absl::Status PrintCells(const std::vector<Definition>& definitions,
                        const experiment::CellOptions& cell_options,
                        const po::variables_map& values) {
  VOXCONV_ASSIGN_OR_RETURN(const Shard shard,
                           ParseShard("--shard", values["shard"].as<std::string>()));
  for (const Definition& definition : definitions) {
    size_t named = 0;
    for (const auto& cell : experiment::ExpandCells(definition, cell_options)) {
      if (!experiment::IsCellNamed(cell, values["cell"].as<std::string>())) continue;
      if (!shard.Has(named++)) continue;
      std::cout << definition.name << ": " << experiment::TitleOf(cell) << "\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunExperiment(const std::vector<std::string>& args) {
  po::options_description options = ExperimentOptions();
  options.add(GivenInputOptions()).add(SessionOptions());
  po::positional_options_description positional;
  positional.add("name", -1);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("experiment NAME... --out DIR [OPTIONS], experiment --list, or experiment "
                     "--merge DIR... --out DIR",
                     options, positional, args, HiddenOptions()));
  if (values.count("merge") != 0) return MergeExperiments(values);
  const Texts& names = values["name"].as<Texts>();
  const bool list = values["list"].as<bool>();
  if (list && names.empty()) return PrintList();
  if (names.empty()) {
    return absl::InvalidArgumentError(
        "NAME is missing: an experiment is needed; --list shows them");
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<InputSource> given, GivenInputs(values));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Definition> definitions, Select(names));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind backend,
                           ParseBackendKind(values["backend"].as<std::string>()));
  const experiment::CellOptions cell_options{backend, values["quick"].as<bool>(), given};
  const std::string& pattern = values["cell"].as<std::string>();
  VOXCONV_RETURN_IF_ERROR(CheckCellPattern(pattern, definitions, cell_options));
  if (list) return PrintCells(definitions, cell_options, values);
  VOXCONV_ASSIGN_OR_RETURN(const int rounds, RoundsOf(values));
  VOXCONV_ASSIGN_OR_RETURN(const auto runner_options, ParseRunnerOptions(values, args, rounds));
  if (rounds > 1) return RunRounds(rounds, args);
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  WarnOfSlowProducts(session->backend().kind());
  if (values.count("profiled-side") != 0) {
    return RunForProfiler(values["profiled-side"].as<std::string>(), definitions, cell_options,
                          runner_options, *session);
  }
  std::string failure;
  experiment::RunnerOptions shared_options = runner_options;
  shared_options.shared = experiment::MakeShared();
  for (const Definition& definition : definitions) {
    const absl::StatusOr<experiment::Tally> tally =
        RunOne(definition, cell_options, shared_options, *session);
    if (!tally.ok()) {  // which must not keep the others from running
      std::cout << "not run: " << tally.status().message() << "\n";
      if (failure.empty()) failure = std::string(tally.status().message());
      continue;
    }
    if (tally->failed > 0 && failure.empty()) {
      failure = absl::StrCat(definition.name, ": ", tally->failed,
                             " cells failed; the first: ", tally->first_failure);
    }
    if (tally->interrupted) {
      return absl::AbortedError("interrupted; the same command continues where this one stopped");
    }
  }
  return failure.empty() ? absl::OkStatus() : absl::InternalError(failure);
}

}  // namespace voxconv::cli
