// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/tuning.h"

#include <algorithm>
#include <set>
#include <utility>

#include "voxconv/networks/planner.h"

namespace voxconv {
namespace {

MapGroup& FindOrAddMap(std::vector<IndexGroup>& groups, const NetworkGraph& graph, int id) {
  const Node& node = graph.node(id);
  const int coordinates = graph.node(node.inputs[0]).coordinates;
  auto group = std::find_if(groups.begin(), groups.end(), [&](const IndexGroup& candidate) {
    return candidate.coordinates == coordinates;
  });
  if (group == groups.end()) group = groups.insert(groups.end(), {coordinates, {}});
  auto map = std::find_if(group->maps.begin(), group->maps.end(), [&](const MapGroup& candidate) {
    return candidate.outputs == node.coordinates &&
           graph.node(candidate.node).geometry == node.geometry;
  });
  if (map == group->maps.end()) {
    map = group->maps.insert(group->maps.end(),
                             {.node = id, .outputs = node.coordinates, .shapes = {}});
  }
  return *map;
}

// Tries every subset of at most kMostShared things, in lexicographic order.
class SharedSearch {
 public:
  SharedSearch(absl::Span<const double> make_ms, absl::Span<const std::vector<double>> use_ms)
      : make_ms_(make_ms), use_ms_(use_ms) {}

  SharedChoice Run() && {
    Extend({}, 0);
    return std::move(best_);
  }

 private:
  void Extend(const std::vector<int>& made, int first) {
    if (!made.empty() || use_ms_.empty()) Evaluate(made);
    if (made.size() == kMostShared) return;
    for (int thing = first; thing < static_cast<int>(make_ms_.size()); ++thing) {
      std::vector<int> more = made;
      more.push_back(thing);
      Extend(more, thing + 1);
    }
  }

  void Evaluate(const std::vector<int>& made) {
    SharedChoice choice{.taken = {}, .ms = 0};
    for (int thing : made) choice.ms += make_ms_[thing];
    for (const std::vector<double>& user : use_ms_) {
      const int cheapest = *std::min_element(made.begin(), made.end(),
                                             [&](int a, int b) { return user[a] < user[b]; });
      choice.taken.push_back(cheapest);
      choice.ms += user[cheapest];
    }
    if (choice.ms < best_.ms) best_ = std::move(choice);
  }

  absl::Span<const double> make_ms_;
  absl::Span<const std::vector<double>> use_ms_;
  SharedChoice best_;
};

double CostOfShape(const ShapeCosts& shape, const DataflowCost& candidate) {
  return CostOf(shape.layers, candidate.ms, candidate.plan_ms);
}

// The fastest candidate of a shape in each layout; -1 where there is none.
std::vector<int> FastestByLayout(const ShapeCosts& shape, int layouts) {
  std::vector<int> fastest(layouts, -1);
  for (int i = 0; i < static_cast<int>(shape.candidates.size()); ++i) {
    const double ms = CostOfShape(shape, shape.candidates[i]);
    int& known = fastest[shape.candidates[i].layout];
    if (ms == kNoTime) continue;
    if (known < 0 || ms < CostOfShape(shape, shape.candidates[known])) known = i;
  }
  return fastest;
}

struct DataflowChoice {
  std::vector<int> candidates;  // by shape
  double ms = 0;
};

DataflowChoice ChooseDataflows(absl::Span<const ShapeCosts> shapes, std::vector<double> convert_ms,
                               int made_layout) {
  DataflowChoice choice;
  if (made_layout >= 0) choice.ms = std::exchange(convert_ms[made_layout], 0);
  const int layouts = static_cast<int>(convert_ms.size());
  std::vector<std::vector<int>> fastest;
  std::vector<std::vector<double>> use_ms;
  for (const ShapeCosts& shape : shapes) {
    fastest.push_back(FastestByLayout(shape, layouts));
    std::vector<double>& ms = use_ms.emplace_back(layouts, kNoTime);
    for (int layout = 0; layout < layouts; ++layout) {
      const int candidate = fastest.back()[layout];
      if (candidate < 0) continue;
      ms[layout] = CostOfShape(shape, shape.candidates[candidate]);
    }
  }
  const SharedChoice shared = ChooseShared(convert_ms, use_ms);
  choice.ms += shared.ms;
  for (size_t i = 0; i < shared.taken.size(); ++i) {
    choice.candidates.push_back(fastest[i][shared.taken[i]]);
  }
  return choice;
}

// What follows from the form of a map.
struct FormChoice {
  DataflowChoice forward, transposed;
  double ms = 0;
};

FormChoice ChooseForForm(const MapCosts& costs, int form) {
  FormChoice choice;
  choice.forward = ChooseDataflows(costs.forward, costs.convert_ms[form], costs.pairs_layout);
  choice.ms = choice.forward.ms;
  if (costs.transposed.empty()) return choice;
  choice.transposed = ChooseDataflows(costs.transposed, costs.convert_transposed_ms, -1);
  choice.ms += costs.transpose_ms[form] + choice.transposed.ms;
  return choice;
}

}  // namespace

std::vector<IndexGroup> GroupByIndex(const NetworkGraph& graph) {
  std::vector<IndexGroup> groups;
  for (int id = 0; id < static_cast<int>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (!UsesKernelMap(node)) continue;
    MapGroup& map = FindOrAddMap(groups, graph, node.counterpart < 0 ? id : node.counterpart);
    if (node.op != Op::kConv) {
      map.read_as_pairs = true;
      continue;
    }
    const ShapeGroup wanted{node.counterpart >= 0, graph.InputChannels(node), node.channels, {}};
    auto shape =
        std::find_if(map.shapes.begin(), map.shapes.end(), [&](const ShapeGroup& candidate) {
          return candidate.transposed == wanted.transposed && candidate.c_in == wanted.c_in &&
                 candidate.c_out == wanted.c_out;
        });
    if (shape == map.shapes.end()) shape = map.shapes.insert(map.shapes.end(), wanted);
    shape->layers.push_back(id);
  }
  return groups;
}

SharedChoice ChooseShared(absl::Span<const double> make_ms,
                          absl::Span<const std::vector<double>> use_ms) {
  return SharedSearch(make_ms, use_ms).Run();
}

IndexChoice ChooseJointly(const IndexCosts& costs) {
  const int mappings = static_cast<int>(costs.build_ms.size());
  std::vector<std::vector<FormChoice>> by_form;  // [map][form]
  std::vector<std::vector<double>> use_ms;
  for (const MapCosts& map : costs.maps) {
    std::vector<FormChoice>& forms = by_form.emplace_back();
    for (int form = 0; form < static_cast<int>(map.convert_ms.size()); ++form) {
      forms.push_back(ChooseForForm(map, form));
    }
    std::vector<double>& ms = use_ms.emplace_back(mappings, kNoTime);
    for (int mapping = 0; mapping < mappings; ++mapping) {
      if (map.query_ms[mapping] == kNoTime) continue;
      ms[mapping] = map.query_ms[mapping] + forms[map.form[mapping]].ms;
    }
  }
  const SharedChoice shared = ChooseShared(costs.build_ms, use_ms);
  IndexChoice choice{.maps = {}, .ms = shared.ms};
  for (size_t i = 0; i < shared.taken.size(); ++i) {
    const int mapping = shared.taken[i];
    const FormChoice& form = by_form[i][costs.maps[i].form[mapping]];
    choice.maps.push_back({mapping, form.forward.candidates, form.transposed.candidates});
  }
  return choice;
}

std::vector<int64_t> ThresholdCandidates(const NetworkGraph& graph) {
  std::set<int64_t> thresholds = {0};
  for (const StrideGroup& group : GroupByStride(graph)) thresholds.insert(group.max_channels);
  return {thresholds.begin(), thresholds.end()};
}

}  // namespace voxconv
