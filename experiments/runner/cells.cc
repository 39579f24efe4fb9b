// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/cells.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "voxconv/io/scenes.h"

namespace voxconv::experiment {
namespace {

using measure::Json;

constexpr double kQuickWidth = 0.125;

bool RunsOn(const std::vector<std::string>& backends, BackendKind backend) {
  return backends.empty() ||
         std::find(backends.begin(), backends.end(), ToString(backend)) != backends.end();
}

template <typename T>
void KeepFirst(std::vector<T>& axis) {
  if (axis.size() > 1) axis.erase(axis.begin() + 1, axis.end());
}

std::vector<InputSource> Inputs(const Definition& definition, const CellOptions& options) {
  std::vector<InputSource> inputs = options.quick ? definition.quick_inputs : definition.inputs;
  std::erase_if(inputs,
                [&](const InputSource& input) { return !RunsOn(input.backends, options.backend); });
  if (options.given.empty() || definition.given_inputs == "none") return inputs;
  if (definition.given_inputs == "replace") inputs.clear();
  inputs.insert(inputs.end(), options.given.begin(), options.given.end());
  return inputs;
}

std::vector<WorkItem> Works(const Definition& definition, bool quick) {
  if (!quick) return definition.works;
  if (!definition.quick_works.empty()) return definition.quick_works;
  std::vector<WorkItem> works = definition.works;
  KeepFirst(works);
  for (WorkItem& work : works) work.network.width = std::min(work.network.width, kQuickWidth);
  return works;
}

std::vector<int64_t> Resolutions(const Definition& definition, bool quick) {
  std::vector<int64_t> resolutions = definition.resolutions;
  if (quick && !definition.quick_resolutions.empty()) resolutions = definition.quick_resolutions;
  if (quick && definition.quick_resolutions.empty()) KeepFirst(resolutions);
  if (resolutions.empty()) resolutions = {0};
  return resolutions;
}

// The input scaled into the unit sphere, of which `resolution` voxels cover the diameter.
InputSource AtResolution(InputSource input, int64_t resolution) {
  if (resolution == 0) return input;
  // Scenes of objects are made in it.
  input.read.into_unit_sphere = !IsSceneSpec(input.input);
  input.voxel_size = absl::StrCat(2.0 / static_cast<double>(resolution));
  absl::StrAppend(&input.name, " ", resolution, "^3");
  return input;
}

// The inputs in every order. Their names tell those that are not in scan order.
std::vector<InputSource> InOrders(const std::vector<InputSource>& inputs,
                                  std::vector<RowOrder> orders, bool quick) {
  if (quick) KeepFirst(orders);
  if (orders.empty()) orders = {RowOrder::kScan};
  std::vector<InputSource> ordered;
  for (const InputSource& input : inputs) {
    for (const RowOrder order : input.order ? std::vector{*input.order} : orders) {
      ordered.push_back(input);
      ordered.back().order = order;
      if (order == RowOrder::kScan) continue;
      absl::StrAppend(&ordered.back().name, " ", ToString(order));
    }
  }
  return ordered;
}

Precision PrecisionFor(const ConfigurationItem& item, Precision cells, BackendKind backend) {
  const auto own = item.precision.find(backend);
  return own == item.precision.end() ? cells : own->second;
}

// Configurations that are measured, each with its side B.
std::vector<std::pair<ConfigurationItem, ConfigurationItem>> Sides(const Definition& definition,
                                                                   BackendKind backend) {
  std::vector<std::pair<ConfigurationItem, ConfigurationItem>> sides;
  for (const ConfigurationItem& a : definition.configurations) {
    if (!RunsOn(a.backends, backend)) continue;
    if (definition.kind == CellKind::kInfo) sides.emplace_back(a, a);
    for (const std::string& against : a.against) {
      const auto b =
          std::find_if(definition.configurations.begin(), definition.configurations.end(),
                       [&](const ConfigurationItem& item) { return item.name == against; });
      if (RunsOn(b->backends, backend)) sides.emplace_back(a, *b);
    }
  }
  return sides;
}

Json TripleJson(const Int3& v) { return {v.x, v.y, v.z}; }

// All that the layer or the network is made of: labels leave out what is as usual.
Json WorkJson(const WorkItem& work) {
  if (!work.network.name.empty()) {
    return {{"network", work.network.name}, {"width", work.network.width}};
  }
  const GeometryParams& geometry = work.layer.geometry;
  return {{"kind", std::string(ToString(geometry.kind))},
          {"rule", std::string(ToString(geometry.rule))},
          {"kernel", TripleJson(geometry.kernel)},
          {"stride", TripleJson(geometry.stride)},
          {"dilation", TripleJson(geometry.dilation)},
          {"padding", TripleJson(geometry.padding)},
          {"c_in", work.layer.c_in},
          {"c_out", work.layer.c_out}};
}

}  // namespace

Json AskedJson(const Cell& cell) {
  Json json = {{"input", cell.input.name},
               {"like", cell.input.like},
               {"voxel_size", cell.input.voxel_size},
               {"order", std::string(ToString(OrderOf(cell.input)))},
               {"work", cell.work.label},
               {"geometry", WorkJson(cell.work)},
               {"dtype", std::string(ToString(cell.precision_a))},
               {"maps", cell.rebuild_maps ? "rebuilt" : "reused"},
               {"configuration", cell.a.name},
               {"against", cell.b.name == cell.a.name ? Json() : Json(cell.b.name)},
               {"params", cell.a.params}};
  if (!cell.input.range.empty()) json["range"] = cell.input.range;
  if (!cell.input.data.empty()) json["data"] = cell.input.data;
  if (!cell.input.batch.empty()) json["batch"] = cell.input.batch;
  if (cell.input.x.has_value()) json["x"] = *cell.input.x;
  if (cell.precision_b != cell.precision_a) {
    json["dtype_b"] = std::string(ToString(cell.precision_b));
  }
  if (cell.resolution != 0) json["resolution"] = cell.resolution;
  return json;
}

absl::Status CheckDistinct(const std::vector<Cell>& cells) {
  std::map<std::string, const Cell*> seen;
  for (const Cell& cell : cells) {
    const std::string key = AskedJson(cell).dump(-1, ' ', false, Json::error_handler_t::replace);
    const auto [known, inserted] = seen.try_emplace(key, &cell);
    if (inserted) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("two cells are both '", TitleOf(cell), "': the inputs '",
                     known->second->input.input, "' and '", cell.input.input,
                     "' and all else have the same names; allowed are inputs with names that "
                     "differ, and each layer once"));
  }
  return absl::OkStatus();
}

std::vector<Cell> ExpandCells(const Definition& definition, const CellOptions& options) {
  std::vector<Cell> cells;
  if (!RunsOn(definition.backends, options.backend)) return cells;
  std::vector<Precision> precisions = definition.precisions.at(options.backend);
  std::vector<bool> rebuild_maps = definition.rebuild_maps;
  if (options.quick) {
    KeepFirst(precisions);
    KeepFirst(rebuild_maps);
  }
  const auto works = Works(definition, options.quick);
  const auto sides = Sides(definition, options.backend);
  for (const InputSource& input :
       InOrders(Inputs(definition, options), definition.orders, options.quick)) {
    for (int64_t resolution : Resolutions(definition, options.quick)) {
      const InputSource placed = AtResolution(input, resolution);
      for (const WorkItem& work : works) {
        for (Precision precision : precisions) {
          for (bool rebuild : rebuild_maps) {
            for (const auto& [a, b] : sides) {
              cells.push_back({placed, resolution, work,
                               PrecisionFor(a, precision, options.backend),
                               PrecisionFor(b, precision, options.backend), rebuild, a, b});
            }
          }
        }
      }
    }
  }
  return cells;
}

std::string TitleOf(const Cell& cell) {
  const bool compared = cell.a.name != cell.b.name;
  return absl::StrCat(cell.a.name, compared ? absl::StrCat(" vs ", cell.b.name) : "", " | ",
                      cell.input.name, " | ", cell.work.label, " | ", ToString(cell.precision_a),
                      cell.rebuild_maps ? "" : " | maps reused");
}

bool IsCellNamed(const Cell& cell, const std::string& pattern) {
  const std::string title = TitleOf(cell);
  if (pattern.find_first_of("*?") == std::string::npos) return absl::StrContains(title, pattern);
  // No brackets: titles have specs with them.
  const std::string literal = absl::StrReplaceAll(pattern, {{"[", "\\["}, {"\\", "\\\\"}});
  return fnmatch(literal.c_str(), title.c_str(), 0) == 0;
}

}  // namespace voxconv::experiment
