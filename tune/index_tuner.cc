// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/index_tuner.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/verify/gate.h"

namespace voxconv::tune {
namespace {

// Conversions do not compete with each other: all are needed as costs, roughly.
constexpr int kConversionRepeats = 5;
// A mapping whose build and query take this much longer than the fastest that is right is not
// checked, and not taken: what its form of map saves in conversions does not make up for that.
constexpr double kWorthChecking = 2;

struct NamedMapping {
  std::string spec;
  std::unique_ptr<const Mapping> mapping;
};

// What of a map that a mapping makes decides the cost of making others of it.
struct EmittedForm {
  MapForm form = MapForm::kPairs;
  bool has_masks = false;
  bool counts_known = true;
  friend bool operator==(const EmittedForm&, const EmittedForm&) = default;
};

EmittedForm FormOf(const KernelMap& map) {
  EmittedForm form{map.form(), false, map.counts_known()};
  if (map.form() == MapForm::kNeighbourTable) form.has_masks = !map.table().masks.empty();
  return form;
}

// Whether a map in this form is read as it is.
bool IsEmittedAs(const MapReading& reading, const EmittedForm& emitted) {
  const MapNeed& need = reading.need;
  return !need.transposed && need.layout.empty() && need.form == emitted.form;
}

int PositionOf(const MapReading& reading, std::vector<MapReading>& readings) {
  const auto known = std::find_if(readings.begin(), readings.end(),
                                  [&](const MapReading& other) { return other.Same(reading); });
  if (known != readings.end()) return static_cast<int>(known - readings.begin());
  readings.push_back(reading);
  return static_cast<int>(readings.size()) - 1;
}

// One map: its queries, its layers, its conversions.
class MapTuner {
 public:
  MapTuner(const SearchSetup& setup, const FeatureValues& values, const IndexGroup& index,
           const MapGroup& group, absl::Span<const NamedMapping> mappings,
           absl::Span<const double> build_ms, absl::Span<const CoordinateSetPtr> coordinates,
           const std::function<absl::Status()>& step, std::vector<Rejected>& rejected)
      : setup_(setup),
        values_(values),
        group_(group),
        node_(setup.graph.node(group.node)),
        mappings_(mappings),
        build_ms_(build_ms),
        inputs_(*coordinates[index.coordinates]),
        outputs_(*coordinates[group.outputs]),
        step_(step),
        rejected_(rejected) {
    costs_.query_ms.assign(mappings.size(), kNoTime);
    costs_.form.assign(mappings.size(), 0);
  }

  absl::Status Run() {
    VOXCONV_ASSIGN_OR_RETURN(geometry_, ConvGeometry::Create(node_.geometry));
    if (absl::Status status = MakeTrustedMap(); !status.ok()) {
      return StatusAt(absl::StrCat("layer '", node_.name, "'"), status);
    }
    std::vector<int> able;
    for (int i = 0; i < static_cast<int>(mappings_.size()); ++i) {
      if (Serves(i)) able.push_back(i);
    }
    RaceQueries(able);
    CheckFastest(std::move(able));
    VOXCONV_RETURN_IF_ERROR(step_());
    VOXCONV_RETURN_IF_ERROR(TuneShapes(/*transposed=*/false, *trusted_, costs_.forward));
    if (HasTransposed()) VOXCONV_RETURN_IF_ERROR(TuneTransposed());
    if (group_.read_as_pairs) costs_.pairs_layout = PositionOf(MapReading::Pairs(), readings_);
    return MeasureConversions();
  }

  MapCosts TakeCosts() { return std::move(costs_); }
  std::vector<std::vector<TimedDataflow>> TakeDataflows() { return std::move(dataflows_); }

 private:
  const ExecutionContext& context() const { return setup_.context; }
  BackendKind backend() const { return context().backend->kind(); }
  MapProblem problem() const { return {inputs_, outputs_, *geometry_}; }
  bool HasTransposed() const {
    return std::any_of(group_.shapes.begin(), group_.shapes.end(),
                       [](const ShapeGroup& shape) { return shape.transposed; });
  }

  absl::Status MakeTrustedMap() {
    VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                             setup_.registry.mappings().Create(setup_.trusted.mapping, backend()));
    VOXCONV_ASSIGN_OR_RETURN(const auto dataflow, setup_.registry.dataflows().Create(
                                                      setup_.trusted.dataflow, backend()));
    VOXCONV_RETURN_IF_ERROR(CheckTrusted(*mapping, *dataflow));
    VOXCONV_ASSIGN_OR_RETURN(KernelMap pairs, QueryPairs(*mapping, problem(), context()));
    VOXCONV_ASSIGN_OR_RETURN(trusted_pairs_, verify::PairsOnHost(pairs, context()));
    trusted_.emplace(std::move(pairs), context());
    return absl::OkStatus();
  }

  // On the finer side's rows, where strided and inverse layers are the same problem.
  absl::Status CheckTrusted(const Mapping& mapping, const Dataflow& dataflow) const {
    std::vector<CropLayer> layers;
    for (const ShapeGroup& shape : group_.shapes) {
      layers.push_back({setup_.graph.node(shape.layers[0]).geometry,
                        ShapeOfLayer(*geometry_, shape.c_in, shape.c_out, setup_.precision)});
      VOXCONV_RETURN_IF_ERROR(
          dataflow.Supports(Pass::kForward, layers.back().shape)
              .ToStatus(absl::StrCat("dataflow '", setup_.trusted.dataflow, "'")));
    }
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                             CopyToHost(inputs_.rows(), context()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<verify::CropReference> references,
                             CropReferences(layers, rows, inputs_.tensor_stride()));
    for (const verify::CropReference& reference : references) {
      const absl::Status held =
          verify::CheckOnCrop(reference, mapping, /*output_coords=*/nullptr, dataflow, context())
              .status();
      if (held.ok()) continue;
      return StatusAt(
          absl::StrCat("trusted ", setup_.trusted.mapping, "/", setup_.trusted.dataflow), held);
    }
    return absl::OkStatus();
  }

  void Reject(int mapping, const absl::Status& why) {
    rejected_.push_back({node_.name, mappings_[mapping].spec, std::string(why.message())});
  }

  absl::Status CheckMap(int i) {
    const Mapping& mapping = *mappings_[i].mapping;
    VOXCONV_ASSIGN_OR_RETURN(const auto index, mapping.BuildIndex(inputs_, context()));
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, mapping.Query(*index, problem(), context()));
    const EmittedForm form = FormOf(map);
    VOXCONV_RETURN_IF_ERROR(
        verify::CompareMaps(map, trusted_pairs_, context(), "the trusted mapping"));
    const auto known = std::find(forms_.begin(), forms_.end(), form);
    costs_.form[i] = static_cast<int>(known - forms_.begin());
    if (known == forms_.end()) forms_.push_back(form);
    return absl::OkStatus();
  }

  bool Serves(int i) {
    const Support support = mappings_[i].mapping->Supports(*geometry_);
    if (support.failed) Reject(i, support.ToStatus());
    return support.ok;
  }

  // Only one index lives at a time: some take gigabytes.
  void RaceQueries(const std::vector<int>& able) {
    std::unique_ptr<MapIndex> index;
    std::vector<Contestant> contestants;
    for (int i : able) {
      const Mapping& mapping = *mappings_[i].mapping;
      contestants.push_back({absl::StrCat(node_.name, "/query/", mappings_[i].spec),
                             [&] { return mapping.Query(*index, problem(), context()).status(); },
                             [&]() -> absl::Status {
                               index = nullptr;
                               VOXCONV_ASSIGN_OR_RETURN(index,
                                                        mapping.BuildIndex(inputs_, context()));
                               return absl::OkStatus();
                             }});
    }
    const std::vector<Finish> finishes = Race(contestants, setup_.race, setup_.stopwatch);
    for (size_t i = 0; i < able.size(); ++i) {
      if (!finishes[i].status.ok()) Reject(able[i], finishes[i].status);
      costs_.query_ms[able[i]] = finishes[i].ms;
    }
  }

  // Checks the fastest mappings; the others, and those that fail, have no time any more. A check
  // compares all pairs on the host, which takes far longer than a race.
  void CheckFastest(std::vector<int> able) {
    const auto total = [&](int i) { return build_ms_[i] + costs_.query_ms[i]; };
    std::stable_sort(able.begin(), able.end(), [&](int a, int b) { return total(a) < total(b); });
    double fastest = kNoTime;
    for (const int i : able) {
      if (total(i) == kNoTime) continue;
      const bool far = total(i) > kWorthChecking * fastest;
      const absl::Status same = far ? absl::OkStatus() : CheckMap(i);
      if (!same.ok()) Reject(i, same);
      if (far || !same.ok()) {
        costs_.query_ms[i] = kNoTime;
      } else {
        fastest = std::min(fastest, total(i));
      }
    }
  }

  absl::Status TuneShapes(bool transposed, PreparedMaps& maps, std::vector<ShapeCosts>& costs) {
    dataflows_.resize(group_.shapes.size());
    for (size_t i = 0; i < group_.shapes.size(); ++i) {
      const ShapeGroup& shape = group_.shapes[i];
      if (shape.transposed != transposed) continue;
      const std::string& layer = setup_.graph.node(shape.layers[0]).name;
      absl::StatusOr<std::vector<TimedDataflow>> timed =
          TuneShape(setup_, values_, shape, layer, maps, rejected_);
      if (!timed.ok()) return StatusAt(absl::StrCat("layer '", layer, "'"), timed.status());
      ShapeCosts& shape_costs = costs.emplace_back();
      shape_costs.layers = static_cast<int64_t>(shape.layers.size());
      for (const TimedDataflow& candidate : *timed) {
        shape_costs.candidates.push_back({PositionOf(candidate.reading, readings_),
                                          candidate.checked ? candidate.ms : kNoTime,
                                          candidate.plan_ms});
      }
      dataflows_[i] = *std::move(timed);
      VOXCONV_RETURN_IF_ERROR(step_());
    }
    return absl::OkStatus();
  }

  absl::Status TuneTransposed() {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map,
                             context().backend->map_ops().Transpose(trusted_->map(), context()));
    transposed_.emplace(std::move(map), context());
    return TuneShapes(/*transposed=*/true, *transposed_, costs_.transposed);
  }

  // A mapping that emits the form: the fastest, which is the likeliest to be taken.
  int Representative(int form) const {
    int fastest = -1;
    for (int i = 0; i < static_cast<int>(mappings_.size()); ++i) {
      if (costs_.query_ms[i] == kNoTime || costs_.form[i] != form) continue;
      if (fastest < 0 || costs_.query_ms[i] < costs_.query_ms[fastest]) fastest = i;
    }
    return fastest;
  }

  // Median time of `convert` on a map as the mapping emits it, fresh every time: what a conversion
  // finds out about a map, such as its counts, stays with it.
  double TimeFresh(int mapping_index, const std::string& name,
                   const std::function<absl::Status(const KernelMap&)>& convert) {
    const Mapping& mapping = *mappings_[mapping_index].mapping;
    std::unique_ptr<MapIndex> index;
    KernelMap map;
    const Contestant contestant{
        name, [&] { return convert(map); },
        [&]() -> absl::Status {
          if (index == nullptr) {
            VOXCONV_ASSIGN_OR_RETURN(index, mapping.BuildIndex(inputs_, context()));
          }
          VOXCONV_ASSIGN_OR_RETURN(map, mapping.Query(*index, problem(), context()));
          return absl::OkStatus();
        },
        /*repeatable=*/false};
    RaceOptions options = setup_.race;
    options.repeats = std::min(options.repeats, kConversionRepeats);
    return Race({contestant}, options, setup_.stopwatch)[0].ms;
  }

  absl::Status MeasureConversions() {
    for (int form = 0; form < static_cast<int>(forms_.size()); ++form) {
      costs_.convert_ms.emplace_back(readings_.size(), kNoTime);
      costs_.transpose_ms.push_back(kNoTime);
      const int mapping = Representative(form);
      if (mapping < 0) continue;
      for (size_t i = 0; i < readings_.size(); ++i) {
        if (IsEmittedAs(readings_[i], forms_[form])) {
          costs_.convert_ms[form][i] = 0;
          continue;
        }
        costs_.convert_ms[form][i] = TimeFresh(
            mapping, absl::StrCat(node_.name, "/convert"),
            [&](const KernelMap& map) { return readings_[i].Make(map, context()).status(); });
      }
      if (!HasTransposed()) continue;
      costs_.transpose_ms[form] =
          TimeFresh(mapping, absl::StrCat(node_.name, "/transpose"), [&](const KernelMap& map) {
            return context().backend->map_ops().Transpose(map, context()).status();
          });
    }
    MeasureTransposedConversions();
    return step_();
  }

  // Of the transposed map as pairs. A mapping whose map is a table that nobody has counted has a
  // transposed table instead, whose costs are taken to be the same.
  void MeasureTransposedConversions() {
    costs_.convert_transposed_ms.assign(readings_.size(), kNoTime);
    if (!HasTransposed()) return;
    RaceOptions options = setup_.race;
    options.repeats = std::min(options.repeats, kConversionRepeats);
    for (size_t i = 0; i < readings_.size(); ++i) {
      const MapReading& reading = readings_[i];
      if (IsEmittedAs(reading, FormOf(transposed_->map()))) {
        costs_.convert_transposed_ms[i] = 0;
        continue;
      }
      const Contestant contestant{absl::StrCat(node_.name, "/convert transposed"), [&] {
                                    return reading.Make(transposed_->map(), context()).status();
                                  }};
      costs_.convert_transposed_ms[i] = Race({contestant}, options, setup_.stopwatch)[0].ms;
    }
  }

  const SearchSetup& setup_;
  const FeatureValues& values_;
  const MapGroup& group_;
  const Node& node_;
  absl::Span<const NamedMapping> mappings_;
  absl::Span<const double> build_ms_;
  const CoordinateSet& inputs_;
  const CoordinateSet& outputs_;
  const std::function<absl::Status()>& step_;
  std::vector<Rejected>& rejected_;
  std::optional<ConvGeometry> geometry_;
  std::optional<PreparedMaps> trusted_, transposed_;
  reference::KernelMap trusted_pairs_;
  std::vector<EmittedForm> forms_;
  std::vector<MapReading> readings_;
  MapCosts costs_;
  std::vector<std::vector<TimedDataflow>> dataflows_;
};

// Whether the mapping serves any map of the group; the others have no time.
bool Serves(const Mapping& mapping, const SearchSetup& setup, const IndexGroup& group) {
  return std::any_of(group.maps.begin(), group.maps.end(), [&](const MapGroup& map) {
    const auto geometry = ConvGeometry::Create(setup.graph.node(map.node).geometry);
    if (!geometry.ok()) return false;
    const Support support = mapping.Supports(*geometry);
    return support.ok || support.failed;  // a failure is told of where the map is made
  });
}

std::vector<double> RaceBuilds(const SearchSetup& setup, const std::vector<NamedMapping>& mappings,
                               const CoordinateSet& inputs) {
  std::vector<Contestant> contestants;
  contestants.reserve(mappings.size());
  for (const NamedMapping& named : mappings) {
    contestants.push_back({absl::StrCat("build/", named.spec), [&] {
                             return named.mapping->BuildIndex(inputs, setup.context).status();
                           }});
  }
  std::vector<double> ms;
  ms.reserve(mappings.size());
  for (const Finish& finish : Race(contestants, setup.race, setup.stopwatch)) {
    ms.push_back(finish.ms);
  }
  return ms;
}

}  // namespace

absl::StatusOr<IndexTimes> TuneIndex(const SearchSetup& setup, const FeatureValues& values,
                                     const IndexGroup& group,
                                     absl::Span<const CoordinateSetPtr> coordinates,
                                     const std::function<absl::Status()>& step,
                                     std::vector<Rejected>& rejected) {
  std::vector<NamedMapping> mappings;
  IndexTimes times;
  for (const std::string& spec : setup.candidates.mappings) {
    VOXCONV_ASSIGN_OR_RETURN(auto mapping,
                             setup.registry.mappings().Create(spec, setup.context.backend->kind()));
    if (!Serves(*mapping, setup, group)) continue;
    times.mappings.push_back(spec);
    mappings.push_back({spec, std::move(mapping)});
  }
  times.costs.build_ms = RaceBuilds(setup, mappings, *coordinates[group.coordinates]);
  for (const MapGroup& map : group.maps) {
    MapTuner tuner(setup, values, group, map, mappings, times.costs.build_ms, coordinates, step,
                   rejected);
    VOXCONV_RETURN_IF_ERROR(tuner.Run());
    times.costs.maps.push_back(tuner.TakeCosts());
    times.dataflows.push_back(tuner.TakeDataflows());
  }
  return times;
}

}  // namespace voxconv::tune
