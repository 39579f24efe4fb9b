// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/shape_tuner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/verify/gate.h"

namespace voxconv::tune {
namespace {

// A grid is worth its time only from a base that comes near the fastest dataflow.
constexpr double kWorthRefining = 1.5;
// Planning is a small part of a frame, and much the same for all candidates.
constexpr int kPlanRepeats = 3;

class ShapeTuner {
 public:
  ShapeTuner(const SearchSetup& setup, const ShapeGroup& group, const std::string& layer,
             PreparedMaps& maps, std::vector<Rejected>& rejected)
      : setup_(setup),
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
  };

  const ExecutionContext& context() const { return setup_.context; }
  BackendKind backend() const { return context().backend->kind(); }

  absl::Status MakeTrustedOutput() {
    VOXCONV_ASSIGN_OR_RETURN(data_, LayerData::Create(maps_.map().num_inputs(), shape_, context()));
    VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                             family_.Create(setup_.trusted.dataflow, backend()));
    VOXCONV_RETURN_IF_ERROR(
        dataflow->Supports(Pass::kForward, shape_)
            .ToStatus(absl::StrCat("dataflow '", setup_.trusted.dataflow, "'")));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                             data_.Output(*dataflow, maps_.map(), workspace_, context()));
    trusted_ = output;
    trusted_precision_ = RunPrecisionOf(*dataflow);
    return absl::OkStatus();
  }

  verify::RunPrecision RunPrecisionOf(const Dataflow& dataflow) const {
    return verify::RunPrecisionOf(dataflow, shape_, /*with_epilogue=*/true);
  }

  absl::Status Compare(const std::vector<float>& output, const Dataflow& dataflow) const {
    const double bound =
        verify::DifferenceBound(trusted_precision_, RunPrecisionOf(dataflow),
                                shape_.num_offsets * shape_.c_in, /*same_operands=*/true);
    return verify::CompareOutputs(output, trusted_, bound, "the trusted dataflow").status();
  }

  // Adds the candidate if it supports the shape and passes its check.
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
    const auto output = data_.Output(**dataflow, maps_.map(), workspace_, context());
    if (!output.ok()) return Reject(spec, output.status());
    const absl::Status same = Compare(*output, **dataflow);
    if (!same.ok()) return Reject(spec, same);
    const MapReading reading = MapReading::Of(parsed->name, *dataflow, shape_);
    const auto map = maps_.Get(reading);
    if (!map.ok()) return Reject(spec, map.status());
    auto plan = (*dataflow)->Plan(Pass::kForward, **map, shape_, context());
    if (!plan.ok()) return Reject(spec, plan.status());
    entries.push_back({spec, reading, *map, *std::move(plan)});
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
                            .Run(*entry.reading.dataflow, *entry.plan, *entry.map, workspace_,
                                 context())
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
      known = std::move(timed);
      return;
    }
    timed_.push_back(std::move(timed));
  }

  void Refine(const DataflowGrid& grid) {
    double fastest = kNoTime;
    const TimedDataflow* base = nullptr;
    std::vector<std::string> specs;
    for (const TimedDataflow& timed : timed_) {
      fastest = std::min(fastest, timed.ms);
      if (base != nullptr && base->ms <= timed.ms) continue;
      std::vector<std::string> more =
          Expand(grid, timed.spec, shape_.c_in, shape_.c_out, family_, backend());
      if (more.empty()) continue;
      base = &timed;
      specs = std::move(more);
    }
    if (base == nullptr || base->ms > kWorthRefining * fastest) return;
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
  const PluginFamily<Dataflow>& family_;
  const ConvShape shape_;
  const std::string& layer_;
  PreparedMaps& maps_;
  std::vector<Rejected>& rejected_;
  LayerData data_;
  reference::Fp64Array trusted_;
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
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, PreparedMaps& maps,
                                                     std::vector<Rejected>& rejected) {
  return ShapeTuner(setup, shape, layer, maps, rejected).Run();
}

}  // namespace voxconv::tune
