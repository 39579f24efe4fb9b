// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/published.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace voxconv::experiment {
namespace {

using measure::Json;
using Names = std::vector<std::string>;

Names ParameterNames(const Definition& definition) {
  std::set<std::string> names;
  for (const ConfigurationItem& item : definition.configurations) {
    for (const auto& [name, value] : item.params.items()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

Names With(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void CheckFigure(JsonReader& figure) {
  int kinds = 0;
  for (const char* key : {"ratio", "value", "at_least", "at_most"}) {
    const std::optional<double> number = figure.Number(key);
    if (!number.has_value()) continue;
    ++kinds;
    if (!(*number > 0)) figure.Refuse(key, "are numbers above 0");
  }
  const bool faster = figure.Flag("faster", false);
  if (!faster && figure.Has("faster")) figure.Refuse("faster", "is true");
  kinds += faster ? 1 : 0;
  if (kinds == 1) return;
  figure.Refuse("ratio", "is exactly one of ratio, faster, value, at_least and at_most");
}

// Conditions on cells: each value a text, or an array of which one must hold.
void CheckWhere(JsonReader& figure, const Names& parameters) {
  const Json* where = figure.Find("where");
  if (where == nullptr) return;
  const Names allowed = With({"work", "input", "like", "dtype", "maps"}, parameters);
  if (!where->is_object()) return figure.Refuse("where", "is an object");
  for (const auto& [key, value] : where->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    figure.Refuse("where", absl::StrCat("keys are ", absl::StrJoin(allowed, ", ")));
  }
}

}  // namespace

const std::vector<StageGroup>& StageGroups() {
  static const std::vector<StageGroup> kGroups = {
      {"mapping", {Stage::kOutputCoords, Stage::kIndexBuild, Stage::kMapQuery, Stage::kConvert}},
      {"movement", {Stage::kGather, Stage::kScatter}},
      {"convolution", {Stage::kGather, Stage::kGemm, Stage::kScatter, Stage::kFused}},
  };
  return kGroups;
}

std::vector<std::string> StagesNamed(absl::string_view name) {
  for (const StageGroup& group : StageGroups()) {
    if (group.name != name) continue;
    std::vector<std::string> names;
    for (const Stage stage : group.stages) names.emplace_back(ToString(stage));
    return names;
  }
  for (int i = 0; i < kNumStages; ++i) {
    if (ToString(static_cast<Stage>(i)) == name) return {std::string(name)};
  }
  return {};
}

const Names& Metrics() {
  static const Names kMetrics = [] {
    Names names = {"time"};
    for (int i = 0; i < kNumStages; ++i) {
      names.emplace_back(ToString(static_cast<Stage>(i)));
    }
    for (const StageGroup& group : StageGroups()) names.emplace_back(group.name);
    return With(names, {"bytes", "launches", "padding", "queries", "index_bytes", "workspace",
                        "l2_hit", "dram_bytes", "utilisation", "empty", "redundancy", "transfer"});
  }();
  return kMetrics;
}

void CheckPublished(JsonReader& reader, const Definition& definition) {
  Names configurations;
  for (const ConfigurationItem& item : definition.configurations) {
    configurations.push_back(item.name);
  }
  const Names parameters = ParameterNames(definition);
  reader.Each("published", [&](const Json& element, const std::string& path) {
    JsonReader figure(element, path,
                      {"what", "ratio", "faster", "value", "at_least", "at_most", "source", "gpu",
                       "configuration", "against", "metric", "over", "where", "unmeasurable",
                       "data", "fewer_voxels_than"},
                      reader.error());
    figure.Text("what");
    figure.Text("source");
    figure.Text("gpu");
    CheckFigure(figure);
    figure.OneOf("configuration", configurations, "");
    figure.OneOf("against", configurations, "");
    figure.OneOf("metric", Metrics(), "time");
    figure.OneOf("over", {"mean", "max", "min"}, "mean");
    figure.Text("unmeasurable", "");
    figure.Text("data", "");
    figure.OneOf("fewer_voxels_than", InputKinds(), "");
    CheckWhere(figure, parameters);
  });
}

void CheckPlots(JsonReader& reader, const Definition& definition) {
  const Names axes = With({"input", "work", "configuration", "dtype", "maps", "order", "voxels",
                           "x", "neighbours", "resolution"},
                          ParameterNames(definition));
  reader.Each("plots", [&](const Json& element, const std::string& path) {
    JsonReader plot(element, path, {"title", "type", "x", "y", "of", "series", "log"},
                    reader.error());
    plot.Text("title", "");
    plot.OneOf("type", {"bars", "lines"}, "bars");
    plot.OneOf("x", axes);
    plot.OneOf("y", Metrics(), "time");
    plot.OneOf("of", {"ratio", "value"}, "ratio");
    plot.OneOf("series", axes, "configuration");
    for (const std::string& log : plot.Texts("log")) {
      if (log != "x" && log != "y") plot.Refuse("log", "are \"x\" and \"y\"");
    }
  });
}

}  // namespace voxconv::experiment
