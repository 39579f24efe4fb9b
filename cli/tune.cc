// SPDX-License-Identifier: Apache-2.0
// `voxconv tune`: the fastest mapping and dataflow of every layer, as a plan file.
#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/plan_option.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/version.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/interrupt.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/plan_file.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/tune/candidates.h"
#include "voxconv/tune/network_work.h"
#include "voxconv/tune/plan_record.h"
#include "voxconv/tune/search.h"

namespace voxconv::cli {
namespace {

using measure::Json;
using Specs = std::vector<std::string>;

po::options_description TuneNetworkOptions() {
  po::options_description options("Network");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value("minkunet42"),
       absl::StrCat("the network: ", absl::StrJoin(ModelNames(), ", ")).c_str());
  AddShapeOptions(options);
  options.add_options()                                                            //
      ("seed", po::value<uint64_t>()->default_value(1), "seed of the parameters")  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16")  //
      ("fold-batch-norm", po::bool_switch(),
       "fold batch norm into the convolutions where the whole network is timed");
  return options;
}

po::options_description SearchOptions() {
  po::options_description options("Search");
  options.add_options()  //
      ("search", po::value<std::string>()->default_value("measured"),
       "measured: time the candidates of every layer; heuristic: search only the threshold of "
       "PCEngine's Algorithm 1")  //
      ("mapping", po::value<Specs>()->default_value({}, ""),
       "search only this mapping; NAME means all its candidates, a spec with options only itself; "
       "may be repeated")  //
      ("dataflow", po::value<Specs>()->default_value({}, ""),
       "search only this dataflow; written as --mapping")  //
      ("output-coords", po::value<Specs>()->default_value({}, ""),
       "search only these output coordinates; written as --mapping")  //
      ("candidates", po::value<std::string>(),
       "a JSON file with candidates and option grids; its keys replace the built-in lists")  //
      ("quick", po::bool_switch(),
       "try only the default options of all plugins, with 3 repeats")  //
      ("repeats", po::value<int>()->default_value(9),
       "number of rounds, 1 .. 1000; their median counts")  //
      ("out", po::value<std::string>(),
       "add the plan to this file; other plans in it stay; - is standard output");
  return options;
}

// Everything that both searches run on.
struct Job {
  ModelOptions model;
  NetworkGraph graph;
  VoxelizedCloud cloud;
  SparseTensor input;
  Precision precision = Precision::kF32;
  measure::Defaults defaults;
  LayerChoice usual;  // what `run` takes on this backend
  tune::RaceOptions race;
  bool quick = false;
};

bool HasOptions(const std::string& spec) { return absl::StrContains(spec, ':'); }

absl::StatusOr<tune::Candidates> ParseCandidates(const po::variables_map& values,
                                                 const Registry& registry, BackendKind backend) {
  tune::Candidates candidates =
      tune::DefaultCandidates(registry, backend, values["quick"].as<bool>());
  if (values.count("candidates") != 0) {
    const std::string path = values["candidates"].as<std::string>();
    const absl::StatusOr<std::string> text = ReadFileBytes(path);
    if (!text.ok()) {
      return absl::Status(text.status().code(),
                          absl::StrCat("--candidates ", text.status().message()));
    }
    const auto parsed = tune::ParseCandidates(*text, registry, backend, candidates);
    if (!parsed.ok()) return StatusAt(absl::StrCat("--candidates ", path), parsed.status());
    candidates = *parsed;
  }
  const auto& mappings = values["mapping"].as<Specs>();
  const auto& dataflows = values["dataflow"].as<Specs>();
  const auto& output_coords = values["output-coords"].as<Specs>();
  if (!mappings.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(candidates.mappings, tune::Narrow(registry.mappings(), backend,
                                                               candidates.mappings, mappings));
  }
  if (!dataflows.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(candidates.dataflows, tune::Narrow(registry.dataflows(), backend,
                                                                candidates.dataflows, dataflows));
    // Whoever names options wants these and no others.
    if (std::all_of(dataflows.begin(), dataflows.end(), HasOptions)) candidates.grids.clear();
  }
  if (!output_coords.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(
        candidates.output_coords,
        tune::Narrow(registry.output_coords(), backend, candidates.output_coords, output_coords));
  }
  return candidates;
}

absl::StatusOr<Job> MakeJob(const po::variables_map& values, Session& session) {
  Job job;
  VOXCONV_ASSIGN_OR_RETURN(job.model, ParseModelOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(job.graph, MakeModel(values["network"].as<std::string>(), job.model));
  InitializeParameters(job.graph, values["seed"].as<uint64_t>());
  VOXCONV_ASSIGN_OR_RETURN(job.precision, ParseNetworkDtype(values, session.backend().kind()));
  job.quick = values["quick"].as<bool>();
  job.race.repeats = values["repeats"].as<int>();
  if (job.race.repeats < 1 || job.race.repeats > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--repeats ", job.race.repeats, ": allowed are 1 .. 1000"));
  }
  if (job.quick && values["repeats"].defaulted()) job.race.repeats = 3;
  VOXCONV_ASSIGN_OR_RETURN(job.cloud, LoadInput(values));
  if (job.cloud.size() == 0) return absl::InvalidArgumentError("--input: has no voxel to time");
  VOXCONV_ASSIGN_OR_RETURN(job.input,
                           MakeSparseTensor(job.cloud, job.graph.in_channels(), session.Context()));
  VOXCONV_ASSIGN_OR_RETURN(job.defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(job.usual, job.defaults.LayersOn(session.backend().kind()));
  return job;
}

tune::NetworkSetup MakeNetworkSetup(const po::variables_map& values, const Job& job,
                                    Session& session) {
  return {.graph = job.graph,
          .registry = session.registry(),
          .input = job.input,
          .config = {.planner = nullptr,
                     .precision = job.precision,
                     .fold_batch_norm = values["fold-batch-norm"].as<bool>()},
          .context = session.Context(),
          .stopwatch = tune::WallStopwatch(session.Context()),
          .race = job.race};
}

void PrintNetworkTimes(const std::vector<tune::NetworkTime>& times) {
  std::vector<std::vector<std::string>> table = {{"network with", "ms"}};
  for (const tune::NetworkTime& time : times) {
    table.push_back({time.name, time.rejected.empty() ? absl::StrFormat("%.3f", time.ms)
                                                      : absl::StrCat("rejected: ", time.rejected)});
  }
  std::cout << FormatTable(table);
}

// Whether the search is over candidates that the caller named.
bool NamesCandidates(const po::variables_map& values) {
  if (values.count("candidates") != 0) return true;
  const auto names = [&](const char* list) { return !values[list].as<Specs>().empty(); };
  return names("mapping") || names("dataflow") || names("output-coords");
}

// The whole network with the trusted plugins, to whose output the others are held, with the plan,
// with the best single choice, and with what `run` takes by itself. These two replace the plan
// where they are faster: a layer alone and a layer among others need not agree. What `run` takes
// is left out where the caller named candidates, for it need not be one of them. A runner that
// cannot run this dtype yet is no reason to lose the plan.
Json TimePlan(const po::variables_map& values, const Job& job, Session& session,
              tune::SearchResult& result) {
  const LayerChoice& base = job.defaults.trusted;
  const LayerChoice single = tune::BestForAll(result);
  std::vector<tune::NamedPlan> plans = {
      {absl::StrCat(base.mapping, "/", base.dataflow), std::make_shared<FixedPlanner>(base)},
      {"a choice for each layer",
       std::make_shared<ListedPlanner>(tune::PlannedLayers(job.graph, result),
                                       result.layers[0].choice)}};
  if (!single.mapping.empty() && !single.dataflow.empty()) {
    plans.push_back({absl::StrCat(single.mapping, "/", single.dataflow, " for all"),
                     std::make_shared<FixedPlanner>(single)});
  }
  const size_t single_plan = plans.size() - 1;
  std::vector<size_t> others = {single_plan};
  if (!NamesCandidates(values)) {
    others.push_back(plans.size());
    plans.push_back({absl::StrCat("the default, ", job.usual.mapping, "/", job.usual.dataflow),
                     std::make_shared<FixedPlanner>(job.usual)});
  }
  const auto times = tune::TimeNetworks(MakeNetworkSetup(values, job, session), plans);
  if (!times.ok()) {
    std::cout << "network not timed: " << times.status().message() << "\n";
    return nullptr;
  }
  PrintNetworkTimes(*times);
  const size_t taken = tune::PlanToTake(*times, 1, others);
  if (taken == 1) return tune::ToJson(*times);
  if (taken == single_plan) {
    std::cout << "the single choice is the fastest and becomes the plan\n";
    tune::TakeForAll(single, result);
  } else {
    std::cout << "the default is the fastest and becomes the plan\n";
    tune::TakeForAll(job.usual, result);
  }
  return tune::ToJson(*times);
}

absl::StatusOr<measure::TunedPlan> Measured(const po::variables_map& values, const Job& job,
                                            const measure::PlanKey& key, Session& session) {
  tune::SearchSetup setup{.graph = job.graph,
                          .registry = session.registry(),
                          .coordinates = job.input.coordinates(),
                          .precision = job.precision,
                          .candidates = {},
                          .context = session.Context(),
                          .stopwatch = tune::WallStopwatch(session.Context()),
                          .race = job.race,
                          .trusted = job.defaults.trusted};
  VOXCONV_ASSIGN_OR_RETURN(setup.candidates,
                           ParseCandidates(values, session.registry(), session.backend().kind()));
  std::optional<Progress> progress;
  setup.progress = [&](int64_t done, int64_t total) {
    if (!progress.has_value()) progress.emplace("tuning", total);
    progress->Step(done);
  };
  VOXCONV_ASSIGN_OR_RETURN(tune::SearchResult result, tune::MeasuredSearch(setup));
  progress.reset();
  std::cout << FormatTable(tune::LayerTable(job.graph, result))
            << absl::StrFormat("output coordinates: %s %.4f ms\n", result.output_coords.spec,
                               result.output_coords.ms)
            << absl::StrFormat("sum of coordinates, maps and these layers: %.3f ms\n", result.ms);
  for (const tune::Rejected& entry : result.rejected) {
    std::cout << "rejected at " << entry.where << ": " << entry.spec << ": " << entry.reason
              << "\n";
  }
  const tune::Candidates& space = setup.candidates;
  Json details = {{"search",
                   {{"kind", "measured"},
                    {"repeats", job.race.repeats},
                    {"quick", job.quick},
                    {"space",
                     {{"mappings", space.mappings},
                      {"dataflows", space.dataflows},
                      {"output_coords", space.output_coords},
                      {"grids", space.grids.size()}}}}}};
  const Json networks = TimePlan(values, job, session, result);
  details.update(tune::Details(job.graph, result));
  details["networks"] = networks;
  return measure::MakeTunedPlan(key, tune::PlannedLayers(job.graph, result), details);
}

// The one spec given for an option that may be repeated.
absl::StatusOr<std::string> OnlySpec(const po::variables_map& values, const char* name,
                                     const std::string& by_default) {
  const auto& specs = values[name].as<Specs>();
  if (specs.empty()) return by_default;
  if (specs.size() == 1) return specs[0];
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": one spec is allowed with --search heuristic"));
}

absl::StatusOr<HeuristicPlanner::Config> ParseHeuristic(const po::variables_map& values,
                                                        Session& session) {
  if (!values["dataflow"].as<Specs>().empty() || values.count("candidates") != 0) {
    return absl::InvalidArgumentError(
        "--dataflow and --candidates have no meaning with --search heuristic");
  }
  const BackendKind backend = session.backend().kind();
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice usual, defaults.LayersOn(backend));
  HeuristicPlanner::Config config{.narrow = defaults.narrow, .wide = defaults.wide};
  VOXCONV_ASSIGN_OR_RETURN(config.mapping, OnlySpec(values, "mapping", usual.mapping));
  VOXCONV_ASSIGN_OR_RETURN(config.output_coords,
                           OnlySpec(values, "output-coords", usual.output_coords));
  const Registry& registry = session.registry();
  VOXCONV_RETURN_IF_ERROR(registry.mappings().Create(config.mapping, backend).status());
  VOXCONV_RETURN_IF_ERROR(registry.output_coords().Create(config.output_coords, backend).status());
  return config;
}

absl::StatusOr<measure::TunedPlan> Heuristic(const po::variables_map& values, const Job& job,
                                             const measure::PlanKey& key, Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(HeuristicPlanner::Config config, ParseHeuristic(values, session));
  VOXCONV_ASSIGN_OR_RETURN(const tune::ThresholdResult result,
                           tune::TuneThreshold(MakeNetworkSetup(values, job, session), config));
  PrintNetworkTimes(result.times);
  std::cout << absl::StrFormat("threshold B: %d, %.3f ms\n", result.threshold, result.ms);
  config.channel_threshold = result.threshold;
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<LayerChoice> choices,
                           HeuristicPlanner(config).Plan(job.graph));
  const Json details = {{"search",
                         {{"kind", "heuristic"},
                          {"threshold", result.threshold},
                          {"repeats", job.race.repeats},
                          {"quick", job.quick}}},
                        {"networks", tune::ToJson(result.times)}};
  return measure::MakeTunedPlan(key, tune::PlannedLayers(job.graph, choices), details);
}

// What tells where the plan comes from.
void AddProvenance(const po::variables_map& values, const Job& job, Session& session,
                   measure::TunedPlan& plan) {
  const measure::InputDensity density = measure::MeasureDensity(job.cloud.coords);
  plan.record["input"] = {{"name", values["input"].as<std::string>()},
                          {"voxel_size", values["voxel-size"].as<std::string>()},
                          {"order", std::string(ToString(job.cloud.order))},
                          {"hash", measure::HashInput(job.cloud.coords, job.cloud.features)},
                          {"voxels", density.voxels},
                          {"neighbours", density.neighbours}};
  plan.record["voxconv"] = VOXCONV_VERSION;
  plan.record["provenance"] = measure::DescribeProvenance(session.backend());
}

// What is searched is looked at before the input is read.
absl::Status CheckSearch(const po::variables_map& values, const std::string& search,
                         Session& session) {
  if (search == "measured") {
    return ParseCandidates(values, session.registry(), session.backend().kind()).status();
  }
  if (search == "heuristic") return ParseHeuristic(values, session).status();
  return absl::InvalidArgumentError(
      absl::StrCat("--search '", search, "': allowed are measured and heuristic"));
}

}  // namespace

absl::Status RunTune(const std::vector<std::string>& args) {
  po::options_description options = TuneNetworkOptions();
  options.add(SearchOptions()).add(InputOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("tune --input FILE|scene:NAME --out PLAN.json [OPTIONS]", options, {}, args));
  const std::string search = values["search"].as<std::string>();
  VOXCONV_RETURN_IF_ERROR(
      CheckOutputs(GivenPaths(values, {"input", "candidates"}), GivenPaths(values, {"out"})));
  const std::string path = OutOf(values);
  if (!path.empty() && path != kStandardOutput) {
    VOXCONV_RETURN_IF_ERROR(measure::CheckSavePlan(path));
  }
  StandardOutput output(values);
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  WarnOfSlowProducts(session->backend().kind());
  VOXCONV_RETURN_IF_ERROR(CheckSearch(values, search, *session));
  VOXCONV_ASSIGN_OR_RETURN(Job job, MakeJob(values, *session));
  if (path.empty()) {  // said before minutes of work, not after
    return absl::InvalidArgumentError("--out is missing: a file for the plan is needed");
  }
  const measure::InterruptGuard guard;
  job.race.stop = [&] { return guard.interrupted(); };
  const measure::PlanKey key = KeyOf({.network = values["network"].as<std::string>(),
                                      .model = job.model,
                                      .precision = job.precision,
                                      .cloud = job.cloud,
                                      .backend = session->backend()});
  std::cout << key.network << ", width " << key.width
            << (key.grid.empty() ? "" : absl::StrCat(", grid ", key.grid)) << ", "
            << ToString(job.precision) << ", " << job.cloud.size() << " voxels in order "
            << ToString(job.cloud.order) << " (" << measure::ToString(key.input) << "); "
            << key.device << "\n";
  PrintChannels(job.cloud, job.graph.in_channels());
  std::cout << std::flush;
  VOXCONV_ASSIGN_OR_RETURN(measure::TunedPlan plan, search == "measured"
                                                        ? Measured(values, job, key, *session)
                                                        : Heuristic(values, job, key, *session));
  AddProvenance(values, job, *session, plan);
  if (path == kStandardOutput) {
    output.stream() << measure::FormatPlans({plan});
    return absl::OkStatus();
  }
  VOXCONV_RETURN_IF_ERROR(measure::SavePlanOrElsewhere(path, plan));
  std::cout << "plan saved in " << path << "\n";
  return absl::OkStatus();
}

}  // namespace voxconv::cli
