// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/runner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/parse.h"
#include "voxconv/experiments/runner/loaded_input.h"
#include "voxconv/experiments/runner/network_look.h"
#include "voxconv/experiments/runner/published.h"
#include "voxconv/experiments/runner/result_file.h"
#include "voxconv/measure/ab/trial.h"
#include "voxconv/measure/build_info.h"
#include "voxconv/measure/input_class.h"
#include "voxconv/measure/interrupt.h"
#include "voxconv/measure/machine_load.h"
#include "voxconv/measure/plan_file.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/models.h"

namespace voxconv::experiment {
namespace {

using measure::Json;

constexpr int64_t kQuickCropVoxels = 300;

// A problem of what was asked for, which will be there the next time as well.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

class Runner {
 public:
  Runner(const Definition& definition, const RunnerOptions& options, const Registry& registry,
         const ExecutionContext& context, std::optional<ResultFile> file)
      : definition_(definition),
        options_(options),
        registry_(registry),
        context_(context),
        file_(std::move(file)),
        shared_(options.shared == nullptr ? MakeShared() : options.shared) {
    shared_->kept.sides.clear();
  }

  absl::Status Resolve(const std::vector<Cell>& cells);
  absl::StatusOr<Tally> Run(const std::vector<Cell>& cells);
  absl::Status RunForProfiler(const Cell& cell, char side);

 private:
  absl::Status LoadFor(const Cell& cell);
  absl::Status TakePlans(const Cell& cell);
  Json Describe(const Cell& cell) const;
  Json KeyJson(const Json& description) const;
  std::string KeyOf(const Json& description) const;
  std::string CheckKeyOf(const Json& description) const;
  absl::Status RunCell(const Cell& cell, Json& line, std::string& summary);
  absl::Status Compare(const Cell& cell, Json& line, std::string& summary);
  ab::Request RequestFor(const Cell& cell);
  Json HardwareCounters(size_t cell) const;
  absl::StatusOr<ab::Work> MakeWork(const ab::Request& request, const Cell& cell);
  std::string TimeLeft(int64_t done, int64_t total) const;
  absl::Status SayChannels(const Cell& cell);
  bool IsStoppedByCaller() const { return options_.stop && options_.stop(); }
  bool IsStopped() const { return interrupt_.interrupted() || IsStoppedByCaller(); }

  const Definition& definition_;
  const RunnerOptions& options_;
  const Registry& registry_;
  const ExecutionContext context_;
  std::optional<ResultFile> file_;  // of runs that measure
  const std::shared_ptr<Shared> shared_;
  measure::Timer since_start_;
  int64_t run_ = 0;  // cells of this run, for the time left
  std::map<std::string, measure::Configuration> configurations_;  // those of plans: of this cell
  std::map<std::string, Json> tuned_;  // of this cell's plans (measure::PlanSide)
  std::string loaded_;                 // which input `input_` is
  std::shared_ptr<const LoadedInput> input_;
  std::optional<ab::Verifier> verifier_;
  ab::Surroundings surroundings_;
  ab::HeldBefore held_before_;         // of `input_`
  std::string check_key_;              // of this cell
  measure::InterruptGuard interrupt_;  // for as long as cells run
  std::string label_;
  std::set<std::string> said_;  // of inputs and networks
};

absl::Status Runner::Resolve(const std::vector<Cell>& cells) {
  for (const Cell& cell : cells) {
    for (const ConfigurationItem* item : {&cell.a, &cell.b}) {
      if (configurations_.contains(item->name) || PlanPathOf(*item).has_value()) continue;
      VOXCONV_ASSIGN_OR_RETURN(configurations_[item->name],
                               ResolveItem(*item, definition_.kind, registry_));
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(surroundings_.cache,
                           measure::CacheUse::Create(options_.cache, context_));
  verifier_.emplace(registry_, context_, options_.quick ? kQuickCropVoxels : verify::kCropVoxels);
  return absl::OkStatus();
}

absl::Status Runner::LoadFor(const Cell& cell) {
  const std::string wanted =
      absl::StrCat(cell.input.name, "\n", cell.input.input, "\n", cell.input.voxel_size, "\n",
                   cell.input.range, "\n", ToString(OrderOf(cell.input)), "\n", cell.resolution,
                   "\n", absl::StrJoin(cell.input.batch, "\n"));
  if (loaded_ == wanted) return absl::OkStatus();
  loaded_.clear();
  held_before_ = ab::HeldBefore();
  shared_->kept.sides.clear();
  input_ = shared_->inputs[wanted];
  if (input_ == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(LoadedInput input, LoadInputOf(cell.input));
    input_ = std::make_shared<const LoadedInput>(std::move(input));
    constexpr int64_t kMostKept = 2'000'000;  // voxels
    if (input_->cloud.size() <= kMostKept) shared_->inputs[wanted] = input_;
  }
  loaded_ = wanted;
  return absl::OkStatus();
}

// Sides that are plans become those of the cell's network, dtype and input.
absl::Status Runner::TakePlans(const Cell& cell) {
  absl::Status refused;
  for (const auto& [item, precision] :
       {std::pair(&cell.a, cell.precision_a), std::pair(&cell.b, cell.precision_b)}) {
    const std::optional<std::string> path = PlanPathOf(*item);
    if (!path.has_value()) continue;
    configurations_[item->name] = measure::Configuration();
    tuned_[item->name] = {{"plan", *path}};
    absl::StatusOr<measure::PlanSide> side =
        measure::LoadPlanSide(*path,
                              {.backend = context_.backend->kind(),
                               .device = context_.backend->DeviceName(),
                               .network = cell.work.network.name,
                               .width = cell.work.network.width,
                               .grid = "",
                               .precision = precision,
                               .input = measure::Classify(input_->density)},
                              registry_);
    if (!side.ok()) {
      refused.Update(absl::FailedPreconditionError(side.status().message()));
      continue;
    }
    configurations_[item->name] = std::move(side->configuration);
    tuned_[item->name] = std::move(side->tuned);
  }
  return refused;
}

// What tells a cell's results from all others, for the report's rows and for the key.
Json Runner::Describe(const Cell& cell) const {
  Json json = AskedJson(cell);
  json["input_hash"] = input_->hash;
  json["voxels"] = input_->cloud.size();
  json["neighbours"] = input_->density.neighbours;
  json["occupied"] = input_->occupied;
  json["input_class"] = measure::ToString(measure::Classify(input_->density));
  json["specs"] = {{"a", measure::ToJson(configurations_.at(cell.a.name))}};
  if (cell.a.name != cell.b.name) {
    json["specs"]["b"] = measure::ToJson(configurations_.at(cell.b.name));
  }
  json["program"] = measure::ProgramHash();
  json["plugins"] = measure::PluginHashes();
  json["limits"] = {{"memory_mib", options_.memory_limit_mib}};
  // Only what is not as usual: older lines have neither.
  if (options_.cache.cold) json["cache"] = "cold";
  if (options_.cache.limit_mib != 0) json["l2_mib"] = options_.cache.limit_mib;
  return json;
}

// What a round and a check share.
Json Runner::KeyJson(const Json& description) const {
  const measure::BuildInfo build = measure::GetBuildInfo();
  Json key = description;
  key["format"] = kLineFormat;
  key["experiment"] = definition_.name;
  key["kind"] = static_cast<int>(definition_.kind);
  key["commit"] = absl::StrCat(build.commit, build.dirty ? " dirty" : "");
  key["backend"] = std::string(ToString(context_.backend->kind()));
  key["device"] = context_.backend->DeviceName();
  key["quick"] = options_.quick;
  key["seed"] = options_.seed;
  key["stage_times"] = definition_.stage_times;
  return key;
}

std::string Runner::CheckKeyOf(const Json& description) const {
  Json key = KeyJson(description);
  key["check"] = true;
  return HashText(key.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string Runner::KeyOf(const Json& description) const {
  Json key = KeyJson(description);
  key["pairs"] = options_.pairs;
  key["warmup"] = options_.warmup;
  key["counters"] = options_.ncu.empty() ? "" : absl::StrCat("of ", definition_.counters_stage);
  key["round"] = options_.round;
  return HashText(key.dump(-1, ' ', false, Json::error_handler_t::replace));
}

absl::StatusOr<ab::Work> Runner::MakeWork(const ab::Request& request, const Cell& cell) {
  switch (definition_.kind) {
    case CellKind::kNetwork:
      return ab::MakeNetworkWork(request, cell.work.network, registry_, context_);
    case CellKind::kMap:
      return ab::MakeMapWork(request, cell.work.layer.geometry, registry_, context_);
    default:
      return ab::MakeLayerWork(request, cell.work.layer, registry_, context_);
  }
}

ab::Request Runner::RequestFor(const Cell& cell) {
  return {.a = configurations_.at(cell.a.name),
          .b = configurations_.at(cell.b.name),
          .cloud = input_->cloud,
          .rebuild_maps = cell.rebuild_maps,
          .precision_a = cell.precision_a,
          .precision_b = cell.precision_b,
          .seed = options_.seed,
          .stage_times = definition_.stage_times,
          .held_before = &held_before_,
          // Kept sides hold memory, which a limit is about.
          .kept = options_.memory_limit_mib == 0 ? &shared_->kept : nullptr,
          .checked = file_.has_value() && file_->CheckOf(check_key_) != nullptr};
}

absl::Status Runner::RunForProfiler(const Cell& cell, char side) {
  VOXCONV_RETURN_IF_ERROR(LoadFor(cell));
  VOXCONV_RETURN_IF_ERROR(TakePlans(cell));
  const ab::Request request = RequestFor(cell);
  VOXCONV_ASSIGN_OR_RETURN(const ab::Work work, MakeWork(request, cell));
  return experiment::RunForProfiler(side == 'a' ? work.a.run : work.b.run);
}

// A side whose counters cannot be read has the reason in their place: times do not depend on them.
Json Runner::HardwareCounters(size_t cell) const {
  Json hardware = Json::object();
  for (const char side : {'a', 'b'}) {
    std::vector<std::string> command = options_.command;
    command.insert(command.end(),
                   {"--profiled-side", ToString(ProfiledSide{cell, side, definition_.name})});
    const absl::StatusOr<Json> counters =
        ReadHardwareCounters(options_.ncu, StagesNamed(definition_.counters_stage), command);
    hardware[std::string(1, side)] =
        counters.ok() ? *counters : Json{{"error", std::string(counters.status().message())}};
  }
  return hardware;
}

absl::Status Runner::Compare(const Cell& cell, Json& line, std::string& summary) {
  if (options_.progress) {
    options_.progress(label_, 0, 2 * (int64_t{options_.pairs} + options_.warmup));
  }
  const ab::Request request = RequestFor(cell);
  VOXCONV_ASSIGN_OR_RETURN(const ab::Work work, MakeWork(request, cell));
  Json verified;
  if (request.checked) {
    verified = *file_->CheckOf(check_key_);
  } else {
    VOXCONV_ASSIGN_OR_RETURN(const ab::Verification verification,
                             verifier_->Verify(request, work, input_->hash));
    verified = verification.checks;
    VOXCONV_RETURN_IF_ERROR(file_->AppendCheck(check_key_, verified));
  }
  if (options_.check_only) {
    summary = request.checked ? "checked before" : "checked";
    return absl::OkStatus();
  }
  measure::PairedOptions paired;
  paired.pairs = options_.pairs;
  paired.rounds = options_.of_rounds;
  paired.warmup = options_.warmup;
  paired.quick = options_.quick;
  paired.stop = [this] { return IsStopped(); };
  if (options_.progress) {
    paired.progress = [this](int64_t done, int64_t total) {
      options_.progress(label_, done, total);
    };
  }
  VOXCONV_ASSIGN_OR_RETURN(const measure::PairedSamples samples,
                           ab::Measure(paired, work, context_, surroundings_));
  if (samples.stopped) return absl::CancelledError("interrupted");
  VOXCONV_ASSIGN_OR_RETURN(const measure::Comparison comparison, measure::Compare(samples));
  line.update(
      ab::DescribeTrial(request, work, {cell.input.input, cell.input.voxel_size, input_->hash},
                        cell.a.name, cell.b.name, options_.warmup, surroundings_, context_));
  for (const auto& [side, item] : {std::pair("a", &cell.a), std::pair("b", &cell.b)}) {
    const auto tuned = tuned_.find(item->name);
    if (tuned != tuned_.end()) line["configurations"][side]["tuned"] = tuned->second;
  }
  line["factors"]["autotuned"] = tuned_.contains(cell.a.name) || tuned_.contains(cell.b.name);
  line["verified"] = verified;
  Json result = measure::ToJson(comparison, samples);
  for (const StageGroup& group : StageGroups()) {
    const measure::TimeComparison time = measure::CompareStages(samples, group.stages);
    if (!time.ratio.has_value()) continue;
    result["stage_speedups"][group.name] = measure::ToJson(*time.ratio);
    result["a"]["stages_ms"][group.name]["median"] = time.a.median;
    result["b"]["stages_ms"][group.name]["median"] = time.b.median;
  }
  const std::string busy = measure::WhyBusy(surroundings_.load, &comparison);
  result["busy"] = busy.empty() ? Json() : Json(busy);
  const std::string slow = surroundings_.gpu->WhySlow();
  result["clocks"] = slow.empty() ? Json() : Json(slow);
  paired.progress = nullptr;
  VOXCONV_ASSIGN_OR_RETURN(result["captured"],
                           ab::CompareCaptured(paired, work, comparison, context_, surroundings_));
  if (IsStopped()) return absl::CancelledError("interrupted");
  line["result"] = std::move(result);
  const measure::Ratio ratio = comparison.wall.ratio.value_or(measure::Ratio{});
  summary = absl::StrFormat("%.3f ms against %.3f ms: %.2f (%.2f..%.2f), %s",
                            comparison.wall.a.median, comparison.wall.b.median, ratio.value,
                            ratio.low, ratio.high, ToString(comparison.verdict));
  if (!busy.empty()) absl::StrAppend(&summary, " (busy machine: ", busy, ")");
  if (!slow.empty()) absl::StrAppend(&summary, " (", slow, ")");
  return absl::OkStatus();
}

absl::Status Runner::RunCell(const Cell& cell, Json& line, std::string& summary) {
  if (definition_.kind != CellKind::kInfo) {
    const absl::Status status = Compare(cell, line, summary);
    if (!absl::IsResourceExhausted(status) || shared_->kept.sides.empty()) return status;
    shared_->kept.sides.clear();  // the memory of earlier sides may be what was missing
    return Compare(cell, line, summary);
  }
  if (options_.check_only) return absl::OkStatus();  // a look times nothing
  VOXCONV_ASSIGN_OR_RETURN(
      const Json layers,
      LookAtNetwork(cell.work.network, configurations_.at(cell.a.name), cell.precision_a,
                    input_->cloud, options_.seed, registry_, context_));
  line["provenance"] = measure::DescribeProvenance(*context_.backend);
  line["configurations"] = {{"a", measure::ToJson(configurations_.at(cell.a.name))}};
  line["layers"] = layers;
  summary = absl::StrCat(layers.size(), " convolutions");
  return absl::OkStatus();
}

// Which columns of the input a network leaves out, once for each input and network.
absl::Status Runner::SayChannels(const Cell& cell) {
  const bool network =
      definition_.kind == CellKind::kNetwork || definition_.kind == CellKind::kInfo;
  if (!network || !options_.say) return absl::OkStatus();
  if (!said_.insert(absl::StrCat(loaded_, "\n", cell.work.network.name)).second) {
    return absl::OkStatus();
  }
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph,
                           MakeModel(cell.work.network.name, {.width = cell.work.network.width}));
  const std::string text = DescribeChannels(input_->cloud, graph.in_channels());
  if (text.empty()) return absl::OkStatus();
  options_.say(absl::StrCat(cell.input.name, ", ", cell.work.network.name, ": ", text));
  return absl::OkStatus();
}

std::string Runner::TimeLeft(int64_t done, int64_t total) const {
  if (run_ == 0 || done == total) return "";
  const double seconds =
      since_start_.Seconds() / static_cast<double>(run_) * static_cast<double>(total - done);
  if (seconds < 90) return absl::StrFormat("; %.0f s left", seconds);
  return absl::StrFormat("; %.0f min left", seconds / 60);
}

absl::StatusOr<Tally> Runner::Run(const std::vector<Cell>& cells) {
  Tally tally;
  const auto total = static_cast<int64_t>(cells.size());
  for (int64_t i = 0; i < total; ++i) {
    if (IsStopped()) {
      tally.interrupted = true;
      break;
    }
    const Cell& cell = cells[i];
    VOXCONV_RETURN_IF_ERROR(LoadFor(cell));
    const absl::Status plans = TakePlans(cell);
    const Json description = Describe(cell);
    const std::string key = KeyOf(description);
    check_key_ = CheckKeyOf(description);
    if (file_->Has(key)) {
      ++tally.finished_before;
      continue;
    }
    VOXCONV_RETURN_IF_ERROR(SayChannels(cell));
    label_ = absl::StrFormat("cell %d of %d%s, runs", i + 1, total, TimeLeft(i, total));
    Json line = {{"format", kLineFormat},          {"kind", "cell"},
                 {"experiment", definition_.name}, {"key", key},
                 {"status", "measured"},           {"quick", options_.quick},
                 {"round", options_.round},        {"cell", description}};
    std::string summary;
    const absl::Status status = plans.ok() ? RunCell(cell, line, summary) : plans;
    if (status.ok() && !options_.ncu.empty()) {
      line["hardware"] = HardwareCounters(static_cast<size_t>(i));
    }
    // Ctrl-C ends the profiler, too, which leaves counters out.
    const bool cut_short = status.ok() && !options_.ncu.empty() && interrupt_.interrupted();
    // A plugin may return kCancelled, too.
    if ((!status.ok() && IsStoppedByCaller()) ||
        (absl::IsCancelled(status) && interrupt_.interrupted()) || cut_short) {
      tally.interrupted = true;
      break;
    }
    ++run_;
    ++(status.ok() ? tally.measured : IsRefusal(status) ? tally.refused : tally.failed);
    if (!status.ok()) {
      line["status"] = IsRefusal(status) ? "refused" : "failed";
      line["reason"] = std::string(status.message());
      line["provenance"] = measure::DescribeProvenance(*context_.backend);
      summary = absl::StrCat(IsRefusal(status) ? "refused: " : "FAILED: ", status.message());
      if (!IsRefusal(status) && tally.first_failure.empty()) {
        tally.first_failure = absl::StrCat(TitleOf(cell), ": ", status.message());
      }
    }
    if (!options_.check_only) VOXCONV_RETURN_IF_ERROR(file_->Append(line));
    if (options_.say) {
      options_.say(absl::StrFormat("[%d/%d] %s: %s%s", i + 1, total, TitleOf(cell), summary,
                                   TimeLeft(i + 1, total)));
    }
  }
  return tally;
}

std::vector<Cell> CellsToRun(const std::vector<Cell>& cells, const RunnerOptions& options) {
  std::vector<Cell> named;
  for (const Cell& cell : cells) {
    if (IsCellNamed(cell, options.cell_pattern)) named.push_back(cell);
  }
  return options.shard.Of(std::move(named));
}

}  // namespace

absl::Status RunProfiledSide(const Definition& definition, const std::vector<Cell>& all_cells,
                             const ProfiledSide& side, const RunnerOptions& options,
                             const Registry& registry, const ExecutionContext& context) {
  const std::vector<Cell> cells = CellsToRun(all_cells, options);
  if (side.cell >= cells.size()) {
    return absl::OutOfRangeError(absl::StrCat("profiled side: cell ", side.cell, " of ",
                                              cells.size(), " in ", definition.name));
  }
  Runner runner(definition, options, registry, context, std::nullopt);
  VOXCONV_RETURN_IF_ERROR(runner.Resolve(cells));
  return runner.RunForProfiler(cells[side.cell], side.side);
}

std::shared_ptr<Shared> MakeShared() { return std::make_shared<Shared>(); }

std::string ResultPath(const std::string& directory, const std::string& name) {
  std::string file;
  for (const char c : name) {
    const bool plain =
        absl::ascii_isalnum(c) || c == '_' || c == ' ' || (c == '.' && !file.empty());
    if (c == '/') {
      file += '-';
    } else if (plain || static_cast<unsigned char>(c) >= 0x80) {
      file += c;
    } else {
      absl::StrAppendFormat(&file, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat(directory, "/", file, ".jsonl");
}

absl::StatusOr<Tally> RunExperiment(const Definition& definition, const std::vector<Cell>& cells,
                                    const RunnerOptions& options, const Registry& registry,
                                    const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckDistinct(cells));
  Json asked = Json::array();
  for (const Cell& cell : cells) asked.push_back(AskedJson(cell));
  VOXCONV_ASSIGN_OR_RETURN(
      ResultFile file,
      ResultFile::Open(ResultPath(options.directory, definition.name),
                       {{"definition", definition.json},
                        {"asked",
                         {{"backend", std::string(ToString(context.backend->kind()))},
                          {"device", context.backend->DeviceName()},
                          {"quick", options.quick},
                          {"cells", std::move(asked)}}}}));
  Runner runner(definition, options, registry, context, std::move(file));
  const std::vector<Cell> mine = CellsToRun(cells, options);
  VOXCONV_RETURN_IF_ERROR(runner.Resolve(mine));
  return runner.Run(mine);
}

}  // namespace voxconv::experiment
