// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/plan_file.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/output_file.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/json_reader.h"

namespace voxconv::measure {
namespace {

constexpr char kFormat[] = "voxconv-plan";

InputClass ReadInputClass(const Json& object, const std::string& path, absl::Status& error) {
  JsonReader reader(object, path, error);
  return {static_cast<int>(reader.Integer("log2_voxels", 0, 62)),
          static_cast<int>(reader.Integer("log2_neighbours", 0, 62))};
}

// The one of `allowed` that the key's text names.
template <typename T>
T ReadWord(JsonReader& reader, const char* key, const std::vector<T>& allowed) {
  std::vector<std::string> words;
  words.reserve(allowed.size());
  for (const T value : allowed) words.emplace_back(ToString(value));
  const auto found = std::find(words.begin(), words.end(), reader.OneOf(key, words));
  return found == words.end() ? allowed[0] : allowed[found - words.begin()];
}

PlanKey ReadKey(const Json& object, const std::string& path, absl::Status& error) {
  JsonReader reader(object, path, error);
  PlanKey key;
  key.backend = ReadWord<BackendKind>(reader, "backend", {BackendKind::kCpu, BackendKind::kCuda});
  key.device = reader.Text("device");
  key.network = reader.Text("network");
  const std::optional<double> width = reader.Number("width");
  if (!width.has_value()) reader.Refuse("width", "are numbers");
  key.width = width.value_or(0);
  if (reader.Has("grid")) key.grid = reader.Text("grid");
  key.precision = ReadWord<Precision>(
      reader, "dtype", {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16});
  key.input = ReadInputClass(reader.Object("input_class"), reader.PathOf("input_class"), error);
  return key;
}

Json KeyToJson(const PlanKey& key) {
  Json json = {
      {"backend", std::string(ToString(key.backend))},
      {"device", key.device},
      {"network", key.network},
      {"width", key.width},
      {"dtype", std::string(ToString(key.precision))},
      {"input_class",
       {{"log2_voxels", key.input.log2_voxels}, {"log2_neighbours", key.input.log2_neighbours}}}};
  if (!key.grid.empty()) json["grid"] = key.grid;
  return json;
}

PlannedLayer ReadLayer(const Json& object, const std::string& path, absl::Status& error) {
  constexpr int64_t kMostChannels = INT32_MAX;
  JsonReader reader(object, path, error);
  PlannedLayer layer;
  layer.name = reader.Text("name");
  layer.c_in = reader.Integer("c_in", 1, kMostChannels);
  layer.c_out = reader.Integer("c_out", 1, kMostChannels);
  layer.choice.mapping = reader.Text("mapping");
  layer.choice.dataflow = reader.Text("dataflow");
  layer.choice.output_coords = reader.Text("output_coords");
  return layer;
}

TunedPlan ReadPlan(const Json& object, const std::string& path, absl::Status& error) {
  JsonReader reader(object, path, error);
  TunedPlan plan;
  plan.key = ReadKey(reader.Object("key"), reader.PathOf("key"), error);
  reader.Each("layers", [&](const Json& layer, const std::string& layer_path) {
    plan.layers.push_back(ReadLayer(layer, layer_path, error));
  });
  if (plan.layers.empty()) reader.Refuse("layers", "is an array of one layer or more");
  plan.record = object;
  return plan;
}

// Narrows `plans` to those with `same`; the error says what the others are for.
absl::Status Keep(std::vector<const TunedPlan*>& plans, absl::string_view what,
                  absl::string_view wanted,
                  const std::function<std::string(const PlanKey&)>& value) {
  std::set<std::string> others;
  for (const TunedPlan* plan : plans) others.insert(value(plan->key));
  std::erase_if(plans, [&](const TunedPlan* plan) { return value(plan->key) != wanted; });
  if (!plans.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no plan for ", what, " '", wanted,
                                          "'; there is one for '", absl::StrJoin(others, "', '"),
                                          "'"));
}

// The plans of the file, none if it does not exist.
absl::StatusOr<std::vector<TunedPlan>> ReadIfThere(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<TunedPlan>();
  return ReadPlans(path);
}

// "each layer's mapping of 3 and dataflow of 24, on scan.bin". Plans are files of anybody: what
// they lack is left out.
std::string WhatWasTuned(const Json& record, bool other_input_class) {
  const Json search = record.value("search", Json::object());
  const Json space = search.is_object() ? search.value("space", Json()) : Json();
  std::string what = "each layer's mapping and dataflow";
  if (space.is_object() && space.value("mappings", Json()).is_array() &&
      space.value("dataflows", Json()).is_array()) {
    what = absl::StrCat("each layer's mapping of ", space["mappings"].size(), " and dataflow of ",
                        space["dataflows"].size());
    const Json grids = space.value("grids", Json());
    if (grids.is_number_unsigned() && grids != 0) absl::StrAppend(&what, " and their options");
  } else if (search.is_object() && search.value("kind", Json()) == "heuristic") {
    what = "the threshold of channels";
  }
  const Json input = record.value("input", Json());
  if (input.is_object() && input.value("name", Json()).is_string()) {
    absl::StrAppend(&what, ", on ", input["name"].get<std::string>());
  }
  if (other_input_class) absl::StrAppend(&what, ", which is of another class of inputs");
  return what;
}

}  // namespace

std::string FormatPlans(const std::vector<TunedPlan>& plans) {
  Json list = Json::array();
  for (const TunedPlan& plan : plans) list.push_back(plan.record);
  const Json file = {{"format", kFormat}, {"version", kPlanVersion}, {"plans", std::move(list)}};
  // The name of an input may hold bytes that are no UTF-8; they become U+FFFD instead of an
  // exception that loses the plan.
  return absl::StrCat(file.dump(1, ' ', false, Json::error_handler_t::replace), "\n");
}

TunedPlan MakeTunedPlan(const PlanKey& key, std::vector<PlannedLayer> layers, const Json& details) {
  TunedPlan plan{key, std::move(layers), {{"key", KeyToJson(key)}}};
  plan.record.update(details);
  Json list = Json::array();
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const PlannedLayer& layer = plan.layers[i];
    Json& object = list.emplace_back(Json{{"name", layer.name},
                                          {"c_in", layer.c_in},
                                          {"c_out", layer.c_out},
                                          {"mapping", layer.choice.mapping},
                                          {"dataflow", layer.choice.dataflow},
                                          {"output_coords", layer.choice.output_coords}});
    if (details.contains("layers")) object.update(details["layers"].at(i));
  }
  plan.record["layers"] = std::move(list);
  return plan;
}

absl::StatusOr<std::vector<TunedPlan>> ParsePlans(absl::string_view json) {
  VOXCONV_ASSIGN_OR_RETURN(const Json object, ParseJson(json));
  absl::Status error;
  JsonReader reader(object, "", error);
  reader.OneOf("format", {kFormat});
  if (!error.ok()) return StatusAt("not a plan file", error);
  reader.Integer("version", kPlanVersion, kPlanVersion);
  if (!reader.Has("plans")) reader.Refuse("plans", "is an array");
  std::vector<TunedPlan> plans;
  reader.Each("plans", [&](const Json& plan, const std::string& path) {
    plans.push_back(ReadPlan(plan, path, error));
  });
  if (!error.ok()) return error;
  return plans;
}

absl::StatusOr<std::vector<TunedPlan>> ReadPlans(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path));
  absl::StatusOr<std::vector<TunedPlan>> plans = ParsePlans(text);
  if (!plans.ok()) return StatusAt(path, plans.status());
  return plans;
}

absl::Status CheckSavePlan(const std::string& path) {
  VOXCONV_RETURN_IF_ERROR(FolderLock::Take(path).status());
  VOXCONV_RETURN_IF_ERROR(ReadIfThere(path).status());
  return CheckWriteFile(path);
}

absl::Status SavePlan(const std::string& path, const TunedPlan& plan) {
  // Until the file is replaced: what another program saves in between would be lost.
  VOXCONV_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(path));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<TunedPlan> plans, ReadIfThere(path));
  const auto same = std::find_if(plans.begin(), plans.end(),
                                 [&](const TunedPlan& other) { return other.key == plan.key; });
  if (same != plans.end()) {
    *same = plan;
  } else {
    plans.push_back(plan);
  }
  return WriteFileBytes(path, FormatPlans(plans));
}

absl::Status SavePlanOrElsewhere(const std::string& path, const TunedPlan& plan) {
  const absl::Status status = SavePlan(path, plan);
  if (status.ok()) return status;
  std::error_code error;
  std::vector<std::string> folders = {"."};
  if (const auto temporary = std::filesystem::temp_directory_path(error); !error) {
    folders.push_back(temporary.string());
  }
  for (const std::string& folder : folders) {
    const auto saved = WriteNewFile(folder, "voxconv-plan-", ".json", FormatPlans({plan}));
    if (!saved.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; the plan is saved in ", *saved));
  }
  return status;
}

absl::StatusOr<FoundPlan> FindPlan(const std::vector<TunedPlan>& plans, const PlanKey& wanted) {
  std::vector<const TunedPlan*> left;
  left.reserve(plans.size());
  for (const TunedPlan& plan : plans) left.push_back(&plan);
  if (left.empty()) return absl::NotFoundError("holds no plan");
  const auto keep = [&](absl::string_view what, auto value) {
    return Keep(left, what, value(wanted), value);
  };
  VOXCONV_RETURN_IF_ERROR(keep("network", [](const PlanKey& key) { return key.network; }));
  VOXCONV_RETURN_IF_ERROR(
      keep("width", [](const PlanKey& key) { return absl::StrCat(key.width); }));
  VOXCONV_RETURN_IF_ERROR(keep("grid", [](const PlanKey& key) { return key.grid; }));
  VOXCONV_RETURN_IF_ERROR(
      keep("dtype", [](const PlanKey& key) { return std::string(ToString(key.precision)); }));
  VOXCONV_RETURN_IF_ERROR(
      keep("backend", [](const PlanKey& key) { return std::string(ToString(key.backend)); }));
  VOXCONV_RETURN_IF_ERROR(keep("device", [](const PlanKey& key) { return key.device; }));
  const auto nearest =
      std::min_element(left.begin(), left.end(), [&](const TunedPlan* a, const TunedPlan* b) {
        return Distance(a->key.input, wanted.input) < Distance(b->key.input, wanted.input);
      });
  return FoundPlan{*nearest, (*nearest)->key.input != wanted.input};
}

Configuration ToConfiguration(const TunedPlan& plan) {
  Configuration configuration;
  configuration.choice = plan.layers[0].choice;
  configuration.plan = plan.layers;
  return configuration;
}

absl::StatusOr<PlanSide> LoadPlanSide(const std::string& path, const PlanKey& key,
                                      const Registry& registry) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<TunedPlan> plans, ReadPlans(path));
  const absl::StatusOr<FoundPlan> found = FindPlan(plans, key);
  if (!found.ok()) return StatusAt(path, found.status());
  PlanSide side;
  side.other_input_class = found->other_input_class;
  side.tuned_for = found->plan->key.input;
  absl::StatusOr<Configuration> resolved = Resolve(ToConfiguration(*found->plan), registry);
  if (!resolved.ok()) return StatusAt(path, resolved.status());
  side.configuration = *std::move(resolved);
  const Json& record = found->plan->record;
  side.tuned = {{"plan", path},
                {"what", WhatWasTuned(record, side.other_input_class)},
                {"search", record.value("search", Json())},
                {"input", record.value("input", Json())},
                {"commit", record.value("provenance", Json::object()).value("commit", Json())},
                {"other_input_class", side.other_input_class}};
  return side;
}

}  // namespace voxconv::measure
