#include "measure/plan_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status_macros.h"
#include "io/file_bytes.h"
#include "measure/json_file.h"

namespace voxconv::measure {
namespace {

constexpr char kFormat[] = "voxconv-plan";

absl::Status Prefix(absl::string_view prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

// object[key], which must be there and satisfy `is`.
absl::StatusOr<const Json*> Member(const Json& object, const char* key, const char* type,
                                   bool (Json::*is)() const noexcept) {
  if (!object.is_object()) return absl::InvalidArgumentError("not an object");
  const auto found = object.find(key);
  if (found == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat("key '", key, "' is missing"));
  }
  if (!((*found).*is)()) {
    return absl::InvalidArgumentError(absl::StrCat("key '", key, "' must be ", type));
  }
  return &*found;
}

absl::StatusOr<std::string> Text(const Json& object, const char* key) {
  VOXCONV_ASSIGN_OR_RETURN(const Json* text, Member(object, key, "a text", &Json::is_string));
  return text->get<std::string>();
}

absl::StatusOr<int64_t> Integer(const Json& object, const char* key) {
  VOXCONV_ASSIGN_OR_RETURN(const Json* number,
                           Member(object, key, "a whole number", &Json::is_number_integer));
  return number->get<int64_t>();
}

absl::StatusOr<InputClass> ParseInputClass(const Json& object) {
  VOXCONV_ASSIGN_OR_RETURN(const int64_t voxels, Integer(object, "log2_voxels"));
  VOXCONV_ASSIGN_OR_RETURN(const int64_t neighbours, Integer(object, "log2_neighbours"));
  if (voxels < 0 || voxels > 62 || neighbours < 0 || neighbours > 62) {
    return absl::InvalidArgumentError("key 'input_class': allowed are 0 .. 62");
  }
  return InputClass{static_cast<int>(voxels), static_cast<int>(neighbours)};
}

absl::StatusOr<PlanKey> ParseKey(const Json& object) {
  PlanKey key;
  VOXCONV_ASSIGN_OR_RETURN(const std::string backend, Text(object, "backend"));
  VOXCONV_ASSIGN_OR_RETURN(key.backend, ParseBackendKind(backend));
  VOXCONV_ASSIGN_OR_RETURN(key.device, Text(object, "device"));
  VOXCONV_ASSIGN_OR_RETURN(key.network, Text(object, "network"));
  VOXCONV_ASSIGN_OR_RETURN(const Json* width,
                           Member(object, "width", "a number", &Json::is_number));
  key.width = width->get<double>();
  VOXCONV_ASSIGN_OR_RETURN(const std::string dtype, Text(object, "dtype"));
  VOXCONV_ASSIGN_OR_RETURN(key.dtype, ParseDType(dtype));
  VOXCONV_ASSIGN_OR_RETURN(const Json* input,
                           Member(object, "input_class", "an object", &Json::is_object));
  VOXCONV_ASSIGN_OR_RETURN(key.input, ParseInputClass(*input));
  return key;
}

Json ToJson(const PlanKey& key) {
  return {
      {"backend", std::string(ToString(key.backend))},
      {"device", key.device},
      {"network", key.network},
      {"width", key.width},
      {"dtype", std::string(ToString(key.dtype))},
      {"input_class",
       {{"log2_voxels", key.input.log2_voxels}, {"log2_neighbours", key.input.log2_neighbours}}}};
}

absl::StatusOr<PlannedLayer> ParseLayer(const Json& object) {
  PlannedLayer layer;
  VOXCONV_ASSIGN_OR_RETURN(layer.name, Text(object, "name"));
  VOXCONV_ASSIGN_OR_RETURN(layer.c_in, Integer(object, "c_in"));
  VOXCONV_ASSIGN_OR_RETURN(layer.c_out, Integer(object, "c_out"));
  VOXCONV_ASSIGN_OR_RETURN(layer.choice.mapping, Text(object, "mapping"));
  VOXCONV_ASSIGN_OR_RETURN(layer.choice.dataflow, Text(object, "dataflow"));
  VOXCONV_ASSIGN_OR_RETURN(layer.choice.output_coords, Text(object, "output_coords"));
  return layer;
}

absl::StatusOr<TunedPlan> ParsePlan(const Json& object) {
  TunedPlan plan;
  VOXCONV_ASSIGN_OR_RETURN(const Json* key, Member(object, "key", "an object", &Json::is_object));
  VOXCONV_ASSIGN_OR_RETURN(plan.key, ParseKey(*key));
  VOXCONV_ASSIGN_OR_RETURN(const Json* layers, Member(object, "layers", "a list", &Json::is_array));
  if (layers->empty()) return absl::InvalidArgumentError("key 'layers' is empty");
  for (const Json& layer : *layers) {
    absl::StatusOr<PlannedLayer> parsed = ParseLayer(layer);
    if (!parsed.ok()) {
      return Prefix(absl::StrCat("layer ", plan.layers.size()), parsed.status());
    }
    plan.layers.push_back(*std::move(parsed));
  }
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

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// The plans of the file, none if it does not exist.
absl::StatusOr<std::vector<TunedPlan>> ReadIfThere(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<TunedPlan>();
  return ReadPlans(path);
}

}  // namespace

TunedPlan MakeTunedPlan(const PlanKey& key, std::vector<PlannedLayer> layers, const Json& details) {
  TunedPlan plan{key, std::move(layers), {{"key", ToJson(key)}}};
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
  const absl::StatusOr<std::string> format = Text(object, "format");
  if (!format.ok() || *format != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a plan file: key 'format' must be '", kFormat, "'"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const int64_t version, Integer(object, "version"));
  if (version != kPlanVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("version ", version, "; this program reads version ", kPlanVersion));
  }
  VOXCONV_ASSIGN_OR_RETURN(const Json* list, Member(object, "plans", "a list", &Json::is_array));
  std::vector<TunedPlan> plans;
  for (const Json& entry : *list) {
    absl::StatusOr<TunedPlan> plan = ParsePlan(entry);
    if (!plan.ok()) return Prefix(absl::StrCat("plan ", plans.size()), plan.status());
    plans.push_back(*std::move(plan));
  }
  return plans;
}

std::string FormatPlans(const std::vector<TunedPlan>& plans) {
  Json list = Json::array();
  for (const TunedPlan& plan : plans) list.push_back(plan.record);
  const Json file = {{"format", kFormat}, {"version", kPlanVersion}, {"plans", std::move(list)}};
  return absl::StrCat(file.dump(1), "\n");
}

absl::StatusOr<std::vector<TunedPlan>> ReadPlans(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path));
  absl::StatusOr<std::vector<TunedPlan>> plans = ParsePlans(text);
  if (!plans.ok()) return Prefix(path, plans.status());
  return plans;
}

absl::Status CheckSavePlan(const std::string& path) {
  VOXCONV_RETURN_IF_ERROR(ReadIfThere(path).status());
  const std::string scratch = absl::StrCat(path, ".new");
  if (!std::ofstream(scratch)) return SystemError(path, "cannot be written");
  std::remove(scratch.c_str());
  return absl::OkStatus();
}

absl::Status SavePlan(const std::string& path, const TunedPlan& plan) {
  VOXCONV_ASSIGN_OR_RETURN(std::vector<TunedPlan> plans, ReadIfThere(path));
  const auto same = std::find_if(plans.begin(), plans.end(),
                                 [&](const TunedPlan& other) { return other.key == plan.key; });
  if (same != plans.end()) {
    *same = plan;
  } else {
    plans.push_back(plan);
  }
  const std::string scratch = absl::StrCat(path, ".new");
  std::ofstream file(scratch);
  file << FormatPlans(plans);
  file.close();
  if (!file || std::rename(scratch.c_str(), path.c_str()) != 0) {
    return SystemError(path, "cannot be written");
  }
  return absl::OkStatus();
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
  VOXCONV_RETURN_IF_ERROR(
      keep("dtype", [](const PlanKey& key) { return std::string(ToString(key.dtype)); }));
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

}  // namespace voxconv::measure
