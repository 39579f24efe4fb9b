// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/networks/tuning.h"
#include "voxconv/tune/index_tuner.h"

namespace voxconv::tune {
namespace {

std::vector<Timed> Sorted(std::vector<Timed> timed) {
  std::stable_sort(timed.begin(), timed.end(),
                   [](const Timed& a, const Timed& b) { return a.ms < b.ms; });
  return timed;
}

class Search {
 public:
  explicit Search(const SearchSetup& setup)
      : setup_(setup), graph_(setup.graph), groups_(GroupByIndex(graph_)) {
    // The output coordinates; of each map its queries and its conversions; the shapes.
    total_ = 1;
    for (const IndexGroup& group : groups_) {
      for (const MapGroup& map : group.maps) {
        total_ += 2 + static_cast<int64_t>(map.shapes.size());
      }
    }
  }

  absl::StatusOr<SearchResult> Run() {
    VOXCONV_RETURN_IF_ERROR(TuneOutputCoords());
    VOXCONV_ASSIGN_OR_RETURN(const FeatureValues values,
                             FeatureValues::Create(setup_.precision, setup_.context));
    for (const IndexGroup& group : groups_) {
      VOXCONV_ASSIGN_OR_RETURN(
          const IndexTimes times,
          TuneIndex(
              setup_, values, group, coordinates_, [this] { return Step(); }, result_.rejected));
      VOXCONV_RETURN_IF_ERROR(Choose(group, times));
    }
    std::sort(result_.layers.begin(), result_.layers.end(),
              [](const TunedLayer& a, const TunedLayer& b) { return a.node < b.node; });
    return std::move(result_);
  }

 private:
  absl::Status Step() {
    ++done_;
    if (setup_.progress) setup_.progress(done_, total_);
    if (setup_.race.stop && setup_.race.stop()) {
      return absl::AbortedError("interrupted; nothing is saved");
    }
    return absl::OkStatus();
  }

  // The geometries of all sets but the input's; kUnimplemented says what the plugin does not
  // support.
  absl::StatusOr<std::vector<ConvGeometry>> OutputGeometries(const OutputCoords& plugin) const {
    std::vector<ConvGeometry> geometries;
    for (size_t id = 1; id < graph_.coordinates().size(); ++id) {
      VOXCONV_ASSIGN_OR_RETURN(ConvGeometry geometry,
                               ConvGeometry::Create(graph_.coordinates()[id].geometry));
      VOXCONV_RETURN_IF_ERROR(plugin.Supports(geometry).ToStatus());
      geometries.push_back(std::move(geometry));
    }
    return geometries;
  }

  // All sets of the network by one plugin, in one go where each is made of the one before.
  absl::StatusOr<std::vector<CoordinateSetPtr>> MakeCoordinates(const OutputCoords& plugin) const {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<ConvGeometry> geometries, OutputGeometries(plugin));
    const std::vector<CoordinateRecipe>& recipes = graph_.coordinates();
    std::vector<CoordinateSetPtr> sets = {setup_.coordinates};
    bool chain = true;
    for (size_t id = 1; id < recipes.size(); ++id) {
      chain = chain && recipes[id].from == static_cast<int>(id) - 1;
    }
    if (chain) {
      VOXCONV_ASSIGN_OR_RETURN(auto pending,
                               plugin.Begin(*setup_.coordinates, geometries, setup_.context));
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<CoordinateSetPtr> made,
                               OutputCoords::Finish(std::move(pending), setup_.context));
      sets.insert(sets.end(), made.begin(), made.end());
      return sets;
    }
    for (size_t id = 1; id < recipes.size(); ++id) {
      VOXCONV_ASSIGN_OR_RETURN(
          CoordinateSetPtr set,
          plugin.Compute(*sets[recipes[id].from], geometries[id - 1], setup_.context));
      sets.push_back(std::move(set));
    }
    return sets;
  }

  absl::Status CheckOutputCoords(const OutputCoords& plugin) const {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<CoordinateSetPtr> sets, MakeCoordinates(plugin));
    for (size_t id = 0; id < sets.size(); ++id) {
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                               CopyToHost(sets[id]->rows(), setup_.context));
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> trusted,
                               CopyToHost(coordinates_[id]->rows(), setup_.context));
      if (rows == trusted) continue;
      return absl::InternalError(absl::StrCat("coordinate set ", id, " differs from that of ",
                                              setup_.trusted.output_coords));
    }
    return absl::OkStatus();
  }

  absl::Status TuneOutputCoords() {
    const PluginFamily<OutputCoords>& family = setup_.registry.output_coords();
    const BackendKind backend = setup_.context.backend->kind();
    VOXCONV_ASSIGN_OR_RETURN(const auto trusted,
                             family.Create(setup_.trusted.output_coords, backend));
    VOXCONV_ASSIGN_OR_RETURN(coordinates_, MakeCoordinates(*trusted));
    std::vector<std::pair<std::string, std::unique_ptr<const OutputCoords>>> entries;
    for (const std::string& spec : setup_.candidates.output_coords) {
      VOXCONV_ASSIGN_OR_RETURN(auto plugin, family.Create(spec, backend));
      const absl::Status same = CheckOutputCoords(*plugin);
      if (same.ok()) {
        entries.emplace_back(spec, std::move(plugin));
      } else if (!absl::IsUnimplemented(same)) {
        result_.rejected.push_back({"output coordinates", spec, std::string(same.message())});
      }
    }
    std::vector<Contestant> contestants;
    contestants.reserve(entries.size());
    for (const auto& entry : entries) {
      contestants.push_back({absl::StrCat("output_coords/", entry.first),
                             [this, &entry] { return MakeCoordinates(*entry.second).status(); }});
    }
    std::vector<Timed> timed;
    const std::vector<Finish> finishes = Race(contestants, setup_.race, setup_.stopwatch);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (finishes[i].status.ok()) timed.push_back({entries[i].first, finishes[i].ms});
    }
    if (timed.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("no output_coords candidate runs", LastRejection()));
    }
    timed = Sorted(std::move(timed));
    result_.output_coords = timed[0];
    result_.other_output_coords.assign(timed.begin() + 1, timed.end());
    result_.ms = timed[0].ms;
    return Step();
  }

  // " (SPEC: why)" of the last candidate that was rejected.
  std::string LastRejection() const {
    if (result_.rejected.empty()) return "";
    const Rejected& last = result_.rejected.back();
    return absl::StrCat(" (", last.spec, ": ", last.reason, ")");
  }

  absl::Status Choose(const IndexGroup& group, const IndexTimes& times) {
    const IndexChoice choice = ChooseJointly(times.costs);
    if (choice.maps.empty()) {
      return absl::UnimplementedError(absl::StrCat("layer '", graph_.node(group.maps[0].node).name,
                                                   "': no mapping candidate runs",
                                                   LastRejection()));
    }
    result_.ms += choice.ms;
    for (size_t i = 0; i < group.maps.size(); ++i) {
      AddMap(group.maps[i], static_cast<int>(i), choice.maps[i], times);
    }
    return absl::OkStatus();
  }

  void AddMap(const MapGroup& map, int position, const MapChoice& choice, const IndexTimes& times) {
    const MapCosts& costs = times.costs.maps[position];
    TunedMap tuned{.node = map.node, .mapping = {}, .others = {}, .layers = {}};
    for (int i = 0; i < static_cast<int>(times.mappings.size()); ++i) {
      const double ms = times.costs.build_ms[i] + costs.query_ms[i];
      if (i == choice.mapping) {
        tuned.mapping = {times.mappings[i], ms};
      } else if (ms < kNoTime) {
        tuned.others.push_back({times.mappings[i], ms});
      }
    }
    tuned.others = Sorted(std::move(tuned.others));
    size_t forward = 0, transposed = 0;
    for (size_t i = 0; i < map.shapes.size(); ++i) {
      const ShapeGroup& shape = map.shapes[i];
      const int candidate =
          shape.transposed ? choice.transposed[transposed++] : choice.forward[forward++];
      AddLayers(shape, times.dataflows[position][i], candidate, tuned.mapping.spec);
      tuned.layers.insert(tuned.layers.end(), shape.layers.begin(), shape.layers.end());
    }
    std::sort(tuned.layers.begin(), tuned.layers.end());
    result_.maps.push_back(std::move(tuned));
  }

  void AddLayers(const ShapeGroup& shape, const std::vector<TimedDataflow>& timed, int candidate,
                 const std::string& mapping) {
    TunedLayer layer;
    layer.choice = {mapping, timed[candidate].spec, result_.output_coords.spec};
    layer.ms = timed[candidate].ms;
    for (int i = 0; i < static_cast<int>(timed.size()); ++i) {
      if (i != candidate) layer.others.push_back({timed[i].spec, timed[i].ms});
    }
    layer.others = Sorted(std::move(layer.others));
    for (int id : shape.layers) {
      layer.node = id;
      result_.layers.push_back(layer);
    }
  }

  const SearchSetup& setup_;
  const NetworkGraph& graph_;
  const std::vector<IndexGroup> groups_;
  std::vector<CoordinateSetPtr> coordinates_;
  SearchResult result_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

absl::StatusOr<SearchResult> MeasuredSearch(const SearchSetup& setup) {
  return Search(setup).Run();
}

}  // namespace voxconv::tune
