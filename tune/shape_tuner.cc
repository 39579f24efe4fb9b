// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/shape_tuner.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/networks/tuning.h"
#include "voxconv/tune/host_output.h"
#include "voxconv/verify/gate.h"

namespace voxconv::tune {
namespace {

// A grid is worth its time only from a base that comes near the fastest dataflow.
constexpr double kWorthRefining = 1.5;
// Planning is a small part of a frame, and much the same for all candidates.
constexpr int kPlanRepeats = 3;

class ShapeTuner {
 public:
  ShapeTuner(const SearchSetup& setup, const FeatureValues& values, const ShapeGroup& group,
             const std::string& layer, PreparedMaps& maps, std::vector<Rejected>& rejected)
      : setup_(setup),
        values_(values),
        num_layers_(static_cast<int64_t>(group.layers.size())),
        family_(setup.registry.dataflows()),
        shape_{.c_in = group.c_in,
               .c_out = group.c_out,
               .num_offsets = maps.map().num_offsets(),
               .symmetric = maps.map().symmetric(),
               .types = ConvTypes::Of(setup.precision)},
        layer_(layer),
        maps_(maps),
        rejected_(rejected) {}

  absl::StatusOr<std::vector<TimedDataflow>> Run() {
    VOXCONV_RETURN_IF_ERROR(MakeTrustedOutput());
    std::vector<Entry> entries;
    for (const std::string& spec : setup_.candidates.dataflows) Enter(spec, entries);
    RaceAll(entries);
    for (const DataflowGrid& grid : setup_.candidates.grids) Refine(grid);
    CheckCheapest();
    if (timed_.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("no dataflow candidate runs (", last_refusal_, ")"));
    }
    return std::move(timed_);
  }

 private:
  struct Entry {
    std::string spec;
    MapReading reading;
    std::shared_ptr<const PreparedMap> map;
    std::unique_ptr<DataflowPlan> plan;
    std::unique_ptr<const PreparedWeights> weights;
  };

  const ExecutionContext& context() const { return setup_.context; }
  BackendKind backend() const { return context().backend->kind(); }

  absl::Status MakeTrustedOutput() {
    VOXCONV_ASSIGN_OR_RETURN(
        data_, LayerData::Create(maps_.map().num_inputs(), shape_, values_, context()));
    VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                             family_.Create(setup_.trusted.dataflow, backend()));
    VOXCONV_RETURN_IF_ERROR(
        dataflow->Supports(Pass::kForward, shape_)
            .ToStatus(absl::StrCat("dataflow '", setup_.trusted.dataflow, "'")));
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor output,
        data_.Output(*dataflow, maps_.map(), /*weights=*/nullptr, workspace_, context()));
    VOXCONV_RETURN_IF_ERROR(trusted_.Copy(output, context()));
    trusted_precision_ = RunPrecisionOf(*dataflow);
    return absl::OkStatus();
  }

  verify::RunPrecision RunPrecisionOf(const Dataflow& dataflow) const {
    return verify::RunPrecisionOf(dataflow, shape_, /*with_epilogue=*/true);
  }

  // Whether the candidate's output is the trusted one's.
  absl::Status Check(const Dataflow& dataflow) {
    VOXCONV_ASSIGN_OR_RETURN(const auto weights, data_.PrepareWeights(dataflow, context()));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor output, data_.Output(dataflow, maps_.map(), weights.get(),
                                                               workspace_, context()));
    VOXCONV_RETURN_IF_ERROR(output_.Copy(output, context()));
    const double bound =
        verify::DifferenceBound(trusted_precision_, RunPrecisionOf(dataflow),
                                shape_.num_offsets * shape_.c_in, /*same_operands=*/true);
    return verify::HoldDifference(RelativeError(output_, trusted_), bound, "the trusted dataflow")
        .status();
  }

  // Adds the candidate if it supports the shape.
  void Enter(const std::string& spec, std::vector<Entry>& entries) {
    const absl::StatusOr<PluginSpec> parsed = ParsePluginSpec(spec);
    if (!parsed.ok()) return Reject(spec, parsed.status());
    absl::StatusOr<std::shared_ptr<const Dataflow>> dataflow = family_.Create(spec, backend());
    if (!dataflow.ok()) return Reject(spec, dataflow.status());
    const Support support = (*dataflow)->Supports(Pass::kForward, shape_);
    if (support.failed) return Reject(spec, support.ToStatus("dataflow"));
    if (!support.ok) {
      last_refusal_ = support.reason;
      return;
    }
    const MapReading reading = MapReading::Of(parsed->name, *dataflow, shape_);
    const auto map = maps_.Get(reading);
    if (!map.ok()) return Reject(spec, map.status());
    auto plan = (*dataflow)->Plan(Pass::kForward, **map, shape_, context());
    if (!plan.ok()) return Reject(spec, plan.status());
    auto weights = data_.PrepareWeights(**dataflow, context());
    if (!weights.ok()) return Reject(spec, weights.status());
    entries.push_back({spec, reading, *map, *std::move(plan), *std::move(weights)});
  }

  void Reject(const std::string& spec, const absl::Status& why) {
    last_refusal_ = absl::StrCat(spec, ": ", why.message());
    rejected_.push_back({layer_, spec, std::string(why.message())});
  }

  // A candidate that was timed before gets the new time.
  void RaceAll(const std::vector<Entry>& entries) {
    std::vector<Contestant> runs, plans;
    runs.reserve(entries.size());
    plans.reserve(entries.size());
    for (const Entry& entry : entries) {
      const std::string name = absl::StrCat(layer_, "/", entry.spec);
      runs.push_back({name, [this, &entry] {
                        return data_
                            .Run(*entry.reading.dataflow, *entry.plan, *entry.map,
                                 entry.weights.get(), workspace_, context())
                            .status();
                      }});
      plans.push_back({absl::StrCat(name, "/plan"), [this, &entry] {
                         return entry.reading.dataflow
                             ->Plan(Pass::kForward, *entry.map, shape_, context())
                             .status();
                       }});
    }
    RaceOptions plan_options = setup_.race;
    plan_options.repeats = std::min(plan_options.repeats, kPlanRepeats);
    const std::vector<Finish> planned = Race(plans, plan_options, setup_.stopwatch);
    const std::vector<Finish> finishes = Race(runs, setup_.race, setup_.stopwatch);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!finishes[i].status.ok()) {
        Reject(entries[i].spec, finishes[i].status);
        continue;
      }
      Remember({entries[i].spec, entries[i].reading, finishes[i].ms, planned[i].ms});
    }
  }

  void Remember(TimedDataflow timed) {
    for (TimedDataflow& known : timed_) {
      if (known.spec != timed.spec) continue;
      timed.checked = known.checked;
      known = std::move(timed);
      return;
    }
    timed_.push_back(std::move(timed));
  }

  // Checks the candidate unless it has passed before. Where it fails it is rejected, and erased.
  bool Passes(size_t i) {
    if (timed_[i].checked) return true;
    const absl::Status same = Check(*timed_[i].reading.dataflow);
    timed_[i].checked = same.ok();
    if (same.ok()) return true;
    Reject(timed_[i].spec, same);
    timed_.erase(timed_.begin() + static_cast<std::ptrdiff_t>(i));
    return false;
  }

  double CostOf(const TimedDataflow& timed) const {
    return voxconv::CostOf(num_layers_, timed.ms, timed.plan_ms);
  }

  // For each reading of the map: the cheapest candidate that passes, which alone can be chosen.
  void CheckCheapest() {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < timed_.size() && !again; ++i) {
        const bool cheaper =
            std::any_of(timed_.begin(), timed_.end(), [&](const TimedDataflow& other) {
              return other.reading.Same(timed_[i].reading) && CostOf(other) < CostOf(timed_[i]);
            });
        again = !cheaper && !Passes(i);  // another is the cheapest now
      }
    }
  }

  // The fastest candidate that the grid expands, with what it expands to.
  std::pair<int, std::vector<std::string>> BaseOf(const DataflowGrid& grid) const {
    std::pair<int, std::vector<std::string>> base = {-1, {}};
    for (size_t i = 0; i < timed_.size(); ++i) {
      if (base.first >= 0 && timed_[base.first].ms <= timed_[i].ms) continue;
      std::vector<std::string> more =
          Expand(grid, timed_[i].spec, shape_.c_in, shape_.c_out, family_, backend());
      if (!more.empty()) base = {static_cast<int>(i), std::move(more)};
    }
    return base;
  }

  void Refine(const DataflowGrid& grid) {
    auto [position, specs] = BaseOf(grid);
    // A wrong base is erased.
    while (position >= 0 && !Passes(position)) std::tie(position, specs) = BaseOf(grid);
    if (position < 0) return;
    const TimedDataflow* base = &timed_[position];
    double fastest = kNoTime;
    for (const TimedDataflow& timed : timed_) fastest = std::min(fastest, timed.ms);
    if (base->ms > kWorthRefining * fastest) return;
    if (setup_.race.stop && setup_.race.stop()) return;
    // The base races again, so that all times of the grid are from one race.
    if (std::find(specs.begin(), specs.end(), base->spec) == specs.end()) {
      specs.insert(specs.begin(), base->spec);
    }
    std::vector<Entry> entries;
    for (const std::string& spec : specs) Enter(spec, entries);
    RaceAll(entries);
  }

  const SearchSetup& setup_;
  const FeatureValues& values_;
  const int64_t num_layers_;
  const PluginFamily<Dataflow>& family_;
  const ConvShape shape_;
  const std::string& layer_;
  PreparedMaps& maps_;
  std::vector<Rejected>& rejected_;
  LayerData data_;
  HostOutput trusted_, output_;
  verify::RunPrecision trusted_precision_;
  Workspace workspace_;
  std::vector<TimedDataflow> timed_;
  std::string last_refusal_ = "there is none";
};

}  // namespace

MapReading MapReading::Of(const std::string& plugin, std::shared_ptr<const Dataflow> dataflow,
                          const ConvShape& shape) {
  MapReading reading;
  reading.need = dataflow->NeededMap(Pass::kForward, shape);
  if (!reading.need.layout.empty()) reading.plugin = plugin;
  reading.dataflow = std::move(dataflow);
  reading.shape = shape;
  return reading;
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> MapReading::Make(
    const KernelMap& map, const ExecutionContext& context) const {
  if (dataflow != nullptr) return PrepareMap(*dataflow, Pass::kForward, shape, map, context);
  VOXCONV_ASSIGN_OR_RETURN(KernelMap made, context.backend->map_ops().To(need.form, map, context));
  return std::make_shared<const PreparedMap>(std::move(made));
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> PreparedMaps::Get(const MapReading& reading) {
  for (const auto& [known, map] : made_) {
    if (known.Same(reading)) return map;
  }
  VOXCONV_ASSIGN_OR_RETURN(auto map, reading.Make(map_, context_));
  made_.emplace_back(reading, map);
  return map;
}

absl::StatusOr<std::vector<TimedDataflow>> TuneShape(const SearchSetup& setup,
                                                     const FeatureValues& values,
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, PreparedMaps& maps,
                                                     std::vector<Rejected>& rejected) {
  return ShapeTuner(setup, values, shape, layer, maps, rejected).Run();
}

}  // namespace voxconv::tune
