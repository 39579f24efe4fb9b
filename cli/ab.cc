// SPDX-License-Identifier: Apache-2.0
// `voxconv ab`: two configurations on the same work, verified first, then interleaved.
#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "voxconv/cli/ab_rounds.h"
#include "voxconv/cli/cache_options.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/plan_option.h"
#include "voxconv/cli/self_command.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/measure/ab/trial.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/cache_use.h"
#include "voxconv/measure/machine_load.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {
namespace {

using measure::Json;

po::options_description AbOptions() {
  po::options_description options("Comparison");
  options.add_options()  //
      ("a", po::value<std::string>(),
       "side A: a preset, plan:FILE with --network, or MAPPING/DATAFLOW[/OUTPUT_COORDS]")  //
      ("b", po::value<std::string>(), "side B; written as --a")                            //
      ("network", po::value<std::string>(),
       "run this network: minkunet42, sparseresnet21 or centerpoint; without it one layer runs");
  AddShapeOptions(options);
  options.add_options()  //
      ("kind", po::value<std::string>()->default_value("submanifold"),
       "kind of the layer: submanifold, strided, inverse, transposed or generative (the same as "
       "transposed)")  //
      ("rule", po::value<std::string>()->default_value("quantize"),
       "output rule of strided and inverse layers: quantize or dilate")  //
      ("kernel", po::value<std::string>()->default_value("3"),
       "kernel size; one or three values")                                                     //
      ("stride", po::value<std::string>()->default_value("1"), "stride; one or three values")  //
      ("dilation", po::value<std::string>()->default_value("1"),
       "dilation; one or three values")  //
      ("padding", po::value<std::string>()->default_value("0"),
       "padding of rule dilate; one or three values")  //
      ("channels", po::value<std::string>()->default_value("32,32"),
       "input and output channels of the layer, as C_IN,C_OUT or C_INxC_OUT")  //
      ("pairs", po::value<int>()->default_value(measure::kMinPairs),
       "number of measured pairs, 20 or more")  //
      ("warmup", po::value<int>()->default_value(2),
       "runs of each side before the measured pairs")  //
      ("rounds", po::value<int>()->default_value(1),
       "run the comparison this often, each time in a process of its own; the interval then covers "
       "the differences between the rounds")  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16; on the CPU also bf16 for "
       "a layer; the check of both sides against the reference is always in f32")  //
      ("rebuild-maps", po::value<bool>()->default_value(true),
       "true: each run makes coordinates and maps; false: they are made once and not timed")  //
      ("seed", po::value<uint64_t>()->default_value(1),
       "seed of the weights and of a layer's features");
  AddCacheOptions(options);
  options.add_options()  //
      ("out", po::value<std::string>(),
       "append the result to this file as one JSON line, with all that is needed to repeat the "
       "run; - is standard output");
  return options;
}

absl::StatusOr<ab::LayerShape> ParseLayerShape(const po::variables_map& values) {
  const auto text = [&](const char* name) { return values[name].as<std::string>(); };
  ab::LayerShape shape;
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.kind, ParseConvKind(text("kind")));
  VOXCONV_RETURN_IF_ERROR(CheckRuleOption(values, shape.geometry.kind));
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.rule, ParseOutputRule(text("rule")));
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.kernel, ParseInt3("--kernel", text("kernel")));
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.stride, ParseInt3("--stride", text("stride")));
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.dilation, ParseInt3("--dilation", text("dilation")));
  VOXCONV_ASSIGN_OR_RETURN(shape.geometry.padding, ParseInt3("--padding", text("padding")));
  VOXCONV_ASSIGN_OR_RETURN(const LayerChannels channels, ParseLayerChannels(text("channels")));
  shape.c_in = channels.in;
  shape.c_out = channels.out;
  return shape;
}

// What is said about the layer has no meaning for a network, and the other way round.
absl::Status CheckApplicable(const po::variables_map& values) {
  if (values.count("network") == 0) {
    for (const char* name : {"width", "grid"}) {
      if (values.count(name) == 0 || values[name].defaulted()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " has no meaning without --network"));
    }
    return absl::OkStatus();
  }
  for (const char* name : {"kind", "rule", "kernel", "stride", "dilation", "padding", "channels"}) {
    if (values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " has no meaning together with --network"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ab::Work> MakeWork(const po::variables_map& values, const ab::Request& request,
                                  Session& session) {
  if (values.count("network") == 0) {
    VOXCONV_ASSIGN_OR_RETURN(const ab::LayerShape shape, ParseLayerShape(values));
    return ab::MakeLayerWork(request, shape, session.registry(), session.Context());
  }
  VOXCONV_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelOptions(values));
  const ab::NetworkShape shape{values["network"].as<std::string>(), model.width, model.grid};
  return ab::MakeNetworkWork(request, shape, session.registry(), session.Context());
}

absl::StatusOr<measure::Configuration> ParsePlanSide(const po::variables_map& values,
                                                     const char* name, const VoxelizedCloud& cloud,
                                                     Precision precision, Session& session) {
  if (values.count("network") == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": a plan has no meaning without --network"));
  }
  absl::string_view path = values[name].as<std::string>();
  absl::ConsumePrefix(&path, kPlanPrefix);
  VOXCONV_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelOptions(values));
  return LoadPlan(std::string(path),
                  {.network = values["network"].as<std::string>(),
                   .model = model,
                   .precision = precision,
                   .cloud = cloud,
                   .backend = session.backend()},
                  session.registry());
}

absl::StatusOr<measure::Configuration> ParseSide(const po::variables_map& values, const char* name,
                                                 const VoxelizedCloud& cloud, Precision precision,
                                                 Session& session) {
  if (values.count(name) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is missing: a preset or MAPPING/DATAFLOW is needed"));
  }
  if (absl::StartsWith(values[name].as<std::string>(), kPlanPrefix)) {
    return ParsePlanSide(values, name, cloud, precision, session);
  }
  const std::string& text = values[name].as<std::string>();
  const std::string& kind = values["kind"].as<std::string>();
  const bool finds_outputs =
      values.count("network") != 0 || (kind != "submanifold" && kind != "inverse");
  if (!finds_outputs && std::count(text.begin(), text.end(), '/') > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, " '", text, "': output coordinates have no meaning for a layer of kind ", kind,
        "; allowed is MAPPING/DATAFLOW"));
  }
  absl::StatusOr<measure::Configuration> configuration =
      measure::ResolveConfig(text, session.registry());
  if (configuration.ok()) return configuration;
  return absl::Status(configuration.status().code(),
                      absl::StrCat("--", name, " ", configuration.status().message()));
}

void PrintVerification(const ab::Verification& verification, double bound, std::ostream& say) {
  const ab::Held& held = verification.held;
  say << absl::StrFormat(
             "verified: maps right on all rows; %d voxels within %.1e of the reference; %d output "
             "rows within %.1e of %s; outputs of A and B within %.1e (bound %.1e)",
             verification.voxels, verification.error, held.rows, held.error,
             held.by == "sampled rows" ? "the exact sums, the first and the last among them"
                                       : held.by,
             verification.difference, bound)
      << std::endl;
}

std::vector<std::string> Row(const std::string& name, const measure::TimeComparison& time) {
  const auto ms = [](double value) { return absl::StrFormat("%.3f", value); };
  std::vector<std::string> row = {name, ms(time.a.median), ms(time.b.median)};
  if (time.ratio.has_value()) {
    row.push_back(absl::StrFormat("%.2f", time.ratio->value));
    row.push_back(absl::StrFormat("%.2f..%.2f", time.ratio->low, time.ratio->high));
  }
  return row;
}

void PrintTable(const measure::Comparison& comparison, std::ostream& say) {
  std::vector<std::vector<std::string>> table = {
      {"stage", "A ms", "B ms", "B / A", "95 % interval"}};
  for (int i = 0; i < kNumStages; ++i) {
    const measure::TimeComparison& time = comparison.stages[i];
    if (time.a.p90 == 0 && time.b.p90 == 0) continue;
    table.push_back(Row(std::string(ToString(static_cast<Stage>(i))), time));
  }
  table.push_back(Row("total (wall)", comparison.wall));
  say << FormatTable(table);
}

measure::PairedOptions ParsePairedOptions(const po::variables_map& values) {
  measure::PairedOptions options;
  options.pairs = values["pairs"].as<int>();
  options.warmup = values["warmup"].as<int>();
  return options;
}

constexpr int64_t kRunsBeforeEstimate = 4;

// Nobody should learn it from waiting.
void SayHowLong(double seconds, const measure::PairedOptions& options) {
  constexpr double kLong = 60;
  if (seconds < kLong) return;
  std::cout << options.pairs << " pairs take about "
            << absl::FormatDuration(absl::Seconds(static_cast<int64_t>(seconds)))
            << "; Ctrl-C reports those done so far" << std::endl;
}

absl::StatusOr<measure::PairedSamples> MeasureWithProgress(measure::PairedOptions options,
                                                           const ab::Work& work,
                                                           const ExecutionContext& context,
                                                           ab::Surroundings& surroundings) {
  Progress progress("runs", 2 * (int64_t{options.pairs} + options.warmup));
  const measure::Timer timer;
  options.progress = [&](int64_t done, int64_t total) {
    progress.Step(done);
    if (done == kRunsBeforeEstimate) SayHowLong(timer.Seconds() / done * (total - done), options);
  };
  return ab::Measure(options, work, context, surroundings);
}

// What a trial of these options found.
struct Trial {
  Json line;
  measure::Comparison comparison;
  std::string busy;  // measure::WhyBusy
  std::string slow;  // measure::GpuWatch::WhySlow
  Json captured;     // ab::CompareCaptured
};

// Where plugins are loaded, their code may have other vectors than the other side's.
void PrintCompiledFor(const char* side, const LayerChoice& choice, std::ostream& say) {
  if (LoadedPlugins().empty()) return;
  say << side << ": compiled for " << measure::CompiledFor(choice.mapping) << " (mapping) and "
      << measure::CompiledFor(choice.dataflow) << " (dataflow)\n";
}

absl::StatusOr<Precision> ParseDtype(const po::variables_map& values, BackendKind backend) {
  if (values.count("network") != 0) return ParseNetworkDtype(values, backend);
  const std::string& text = values["dtype"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision, ParsePrecision(text));
  if (backend != BackendKind::kCpu || precision == Precision::kF32 ||
      precision == Precision::kBF16) {
    return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype ", text, ": allowed for a layer with --backend cpu are f32 and bf16"));
}

// Verifies, measures, and says on the way what it does.
absl::StatusOr<Trial> RunTrial(const po::variables_map& values, std::ostream& say) {
  const measure::PairedOptions paired = ParsePairedOptions(values);
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  WarnOfSlowProducts(session->backend().kind());
  VOXCONV_ASSIGN_OR_RETURN(const measure::CacheOptions cache,
                           ParseCacheOptions(values, session->backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInput(values));
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision,
                           ParseDtype(values, session->backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const auto a, ParseSide(values, "a", cloud, precision, *session));
  VOXCONV_ASSIGN_OR_RETURN(const auto b, ParseSide(values, "b", cloud, precision, *session));
  const ab::Request request{.a = a,
                            .b = b,
                            .cloud = cloud,
                            .rebuild_maps = values["rebuild-maps"].as<bool>(),
                            .precision_a = precision,
                            .precision_b = precision,
                            .seed = values["seed"].as<uint64_t>()};

  VOXCONV_ASSIGN_OR_RETURN(const ab::Work work, MakeWork(values, request, *session));
  say << "A: " << values["a"].as<std::string>() << "\nB: " << values["b"].as<std::string>() << "\n"
      << work.title << "\norder of rows: " << ToString(cloud.order) << "\n"
      << session->backend().DeviceName() << "\n";
  PrintCompiledFor("A", a.choice, say);
  PrintCompiledFor("B", b.choice, say);
  if (values.count("network") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(const ModelOptions model, ParseModelOptions(values));
    VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph,
                             MakeModel(values["network"].as<std::string>(), model));
    PrintChannels(cloud, graph.in_channels(), say);
  }
  const ab::NamedInput input{values["input"].as<std::string>(),
                             values["voxel-size"].as<std::string>(),
                             measure::HashInput(cloud.coords, cloud.features)};
  VOXCONV_ASSIGN_OR_RETURN(
      const ab::Verification verification,
      ab::Verifier(session->registry(), session->Context()).Verify(request, work, input.hash));
  PrintVerification(verification, work.bound, say);

  ab::Surroundings surroundings;
  VOXCONV_ASSIGN_OR_RETURN(surroundings.cache,
                           measure::CacheUse::Create(cache, session->Context()));
  VOXCONV_ASSIGN_OR_RETURN(const measure::PairedSamples samples,
                           MeasureWithProgress(paired, work, session->Context(), surroundings));
  Trial trial;
  VOXCONV_ASSIGN_OR_RETURN(trial.comparison, measure::Compare(samples));
  trial.busy = measure::WhyBusy(surroundings.load, &trial.comparison);
  trial.slow = surroundings.gpu->WhySlow();
  VOXCONV_ASSIGN_OR_RETURN(trial.captured, ab::CompareCaptured(paired, work, trial.comparison,
                                                               session->Context(), surroundings));
  trial.line = {{"format", 1}, {"kind", "ab"}, {"title", work.title}};
  if (values.count("round") != 0) trial.line["round"] = values["round"].as<int>();
  trial.line.update(ab::DescribeTrial(request, work, input, values["a"].as<std::string>(),
                                      values["b"].as<std::string>(), paired.warmup, surroundings,
                                      session->Context()));
  trial.line["verified"] = verification.checks;
  trial.line["result"] = measure::ToJson(trial.comparison, samples);
  trial.line["result"]["busy"] = trial.busy.empty() ? Json() : Json(trial.busy);
  trial.line["result"]["clocks"] = trial.slow.empty() ? Json() : Json(trial.slow);
  trial.line["result"]["captured"] = trial.captured;
  return trial;
}

void PrintTrial(const Trial& trial, bool rebuild_maps) {
  const measure::Comparison& comparison = trial.comparison;
  std::cout << "\n";
  PrintTable(comparison, std::cout);
  measure::Ratio ratio = comparison.wall.ratio.value_or(measure::Ratio{});
  ratio.pairs = comparison.pairs;
  std::cout << "\n"
            << (comparison.stopped ? "interrupted; " : "") << comparison.pairs << " pairs, "
            << (rebuild_maps ? "maps rebuilt" : "maps reused") << "\n"
            << Styled(Style::kBold, VerdictLine(comparison.verdict, ratio)) << "\n";
  if (trial.captured.contains("speedup")) {
    std::cout << "captured into graphs: " << CapturedLine(trial.captured) << "\n";
  }
  if (!trial.slow.empty()) std::cout << Styled(Style::kYellow, trial.slow) << "\n";
  if (trial.busy.empty()) return;
  std::cout << Styled(Style::kYellow, "busy machine:") << " " << trial.busy
            << "; the next run may find another ratio, and --rounds shows how far rounds differ\n";
}

absl::Status CheckRounds(const po::variables_map& values) {
  const int rounds = values["rounds"].as<int>();
  if (rounds < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds ", rounds, ": allowed are 1 and more"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckMostRounds(rounds));
  if (values.count("round") == 0) return absl::OkStatus();
  for (const char* name : {"rounds", "out"}) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": has no meaning together with --round"));
  }
  if (values["round"].as<int>() >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--round ", values["round"].as<int>(), ": allowed are 1 and more"));
}

// What one round is run with.
std::vector<std::string> WithoutRounds(std::vector<std::string> args) {
  args.erase(std::remove(args.begin(), args.end(), "--json"), args.end());
  return WithoutOption("out", WithoutOption("rounds", args));
}

}  // namespace

absl::Status RunAb(const std::vector<std::string>& args) {
  po::options_description options = AbOptions();
  options.add(JsonOption()).add(InputOptions()).add(SessionOptions());
  po::options_description hidden;
  hidden.add_options()("round", po::value<int>(),
                       "the number of this round, of which the result line alone is printed");
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("ab --a SPEC --b SPEC --input FILE|scene:NAME [OPTIONS]",
                                          options, {}, args, hidden));
  VOXCONV_RETURN_IF_ERROR(measure::CheckOptions(ParsePairedOptions(values)));
  VOXCONV_RETURN_IF_ERROR(CheckApplicable(values));
  VOXCONV_RETURN_IF_ERROR(CheckRounds(values));
  VOXCONV_RETURN_IF_ERROR(
      CheckOutputs(GivenPaths(values, {"input", "a", "b"}), GivenPaths(values, {"out"})));
  VOXCONV_RETURN_IF_ERROR(CheckOut(values));
  StandardOutput output(values);
  if (values["rounds"].as<int>() > 1) {
    return RunAbRounds(values["rounds"].as<int>(), WithoutRounds(args),
                       [&](const Json& line) { return output.WriteResult(values, line); });
  }
  if (values.count("round") != 0) {
    std::ostringstream unsaid;
    VOXCONV_ASSIGN_OR_RETURN(const Trial trial, RunTrial(values, unsaid));
    output.stream() << trial.line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    return absl::OkStatus();
  }
  VOXCONV_ASSIGN_OR_RETURN(const Trial trial, RunTrial(values, std::cout));
  PrintTrial(trial, values["rebuild-maps"].as<bool>());
  return output.WriteResult(values, trial.line);
}

}  // namespace voxconv::cli
