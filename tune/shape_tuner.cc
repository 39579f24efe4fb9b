#include "tune/shape_tuner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "verify/gate.h"

namespace voxconv::tune {
namespace {

// A grid is worth its time only from a base that comes near the fastest dataflow.
constexpr double kWorthRefining = 1.5;
// Planning is a small part of a frame, and much the same for all candidates.
constexpr int kPlanRepeats = 3;

class ShapeTuner {
 public:
  ShapeTuner(const SearchSetup& setup, const ShapeGroup& group, const std::string& layer,
             LayoutCache& maps, std::vector<Rejected>& rejected)
      : setup_(setup),
        family_(setup.registry.dataflows()),
        shape_{group.c_in, group.c_out, setup.dtype},
        layer_(layer),
        maps_(maps),
        rejected_(rejected) {}

  absl::StatusOr<std::vector<TimedDataflow>> Run() {
    VOXCONV_RETURN_IF_ERROR(MakeTrustedOutput());
    std::vector<Entry> entries;
    for (const std::string& spec : setup_.candidates.dataflows) Enter(spec, entries);
    RaceAll(entries);
    for (const OptionGrid& grid : setup_.candidates.grids) Refine(grid);
    if (timed_.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("no dataflow candidate runs (", last_refusal_, ")"));
    }
    return std::move(timed_);
  }

 private:
  struct Entry {
    std::string spec;
    std::unique_ptr<const Dataflow> dataflow;
    std::shared_ptr<const KernelMap> map;
    std::unique_ptr<DataflowPlan> plan;
  };

  const ExecutionContext& context() const { return setup_.context; }

  absl::Status MakeTrustedOutput() {
    const KernelMap& pairs = maps_.pairs();
    reduction_ = pairs.num_offsets() * shape_.c_in;
    VOXCONV_ASSIGN_OR_RETURN(
        data_, LayerData::Create(pairs.num_inputs(), pairs.num_offsets(), shape_, context()));
    VOXCONV_ASSIGN_OR_RETURN(const auto dataflow, family_.Create(setup_.trusted.dataflow));
    const Support support = dataflow->Supports(shape_, context().backend->kind());
    if (!support.ok) {
      return absl::UnimplementedError(
          absl::StrCat("dataflow '", setup_.trusted.dataflow, "': ", support.reason));
    }
    VOXCONV_ASSIGN_OR_RETURN(const auto map,
                             maps_.Get(dataflow->RequiredLayout(pairs.num_offsets())));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                             data_.Output(*dataflow, *map, workspace_, context()));
    trusted_ = output;
    trusted_precision_ = Precision(*dataflow);
    return absl::OkStatus();
  }

  verify::RunPrecision Precision(const Dataflow& dataflow) const {
    return verify::PrecisionOf(dataflow, shape_.dtype, context().backend->kind(),
                               /*with_epilogue=*/true);
  }

  absl::Status Compare(const std::vector<float>& output, const Dataflow& dataflow) const {
    const double bound = verify::DifferenceBound(trusted_precision_, Precision(dataflow),
                                                 reduction_, /*same_operands=*/true);
    return verify::CompareOutputs(output, trusted_, bound, "the trusted dataflow").status();
  }

  // Adds the candidate if it supports the shape and passes its check.
  void Enter(const std::string& spec, std::vector<Entry>& entries) {
    absl::StatusOr<std::unique_ptr<const Dataflow>> dataflow = family_.Create(spec);
    if (!dataflow.ok()) return Reject(spec, dataflow.status());
    const Support support = (*dataflow)->Supports(shape_, context().backend->kind());
    if (!support.ok) {
      last_refusal_ = support.reason;
      return;
    }
    const auto map = maps_.Get((*dataflow)->RequiredLayout(maps_.pairs().num_offsets()));
    if (!map.ok()) return Reject(spec, map.status());
    const auto output = data_.Output(**dataflow, **map, workspace_, context());
    if (!output.ok()) return Reject(spec, output.status());
    const absl::Status same = Compare(*output, **dataflow);
    if (!same.ok()) return Reject(spec, same);
    auto plan = (*dataflow)->Plan(**map, shape_, context());
    if (!plan.ok()) return Reject(spec, plan.status());
    entries.push_back({spec, *std::move(dataflow), *map, *std::move(plan)});
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
                            .Run(*entry.dataflow, *entry.plan, *entry.map, workspace_, context())
                            .status();
                      }});
      plans.push_back({absl::StrCat(name, "/plan"), [this, &entry] {
                         return entry.dataflow->Plan(*entry.map, shape_, context()).status();
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
      Remember({entries[i].spec, entries[i].map->layout(), finishes[i].ms, planned[i].ms});
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

  void Refine(const OptionGrid& grid) {
    double fastest = kNoTime;
    const TimedDataflow* base = nullptr;
    std::vector<std::string> specs;
    for (const TimedDataflow& timed : timed_) {
      fastest = std::min(fastest, timed.ms);
      if (base != nullptr && base->ms <= timed.ms) continue;
      std::vector<std::string> more = Expand(grid, timed.spec, shape_.c_in, shape_.c_out, family_);
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
  LayoutCache& maps_;
  std::vector<Rejected>& rejected_;
  int64_t reduction_ = 0;
  LayerData data_;
  reference::Fp64Array trusted_;
  verify::RunPrecision trusted_precision_;
  Workspace workspace_;
  std::vector<TimedDataflow> timed_;
  std::string last_refusal_ = "there is none";
};

}  // namespace

LayoutCache::LayoutCache(KernelMap pairs, const ExecutionContext& context) : context_(context) {
  const LayoutRequest layout = pairs.layout();
  maps_.emplace_back(layout, std::make_shared<const KernelMap>(std::move(pairs)));
}

absl::StatusOr<std::shared_ptr<const KernelMap>> LayoutCache::Get(const LayoutRequest& request) {
  for (const auto& [layout, map] : maps_) {
    if (layout == request) return map;
  }
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map,
                           context_.backend->ConvertKernelMap(pairs(), request, context_));
  maps_.emplace_back(request, std::make_shared<const KernelMap>(std::move(map)));
  return maps_.back().second;
}

absl::StatusOr<std::vector<TimedDataflow>> TuneShape(const SearchSetup& setup,
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, LayoutCache& maps,
                                                     std::vector<Rejected>& rejected) {
  return ShapeTuner(setup, shape, layer, maps, rejected).Run();
}

}  // namespace voxconv::tune
