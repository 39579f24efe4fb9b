// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/preset.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/measure/data_files.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/json_reader.h"

namespace voxconv::measure {
namespace {

namespace fs = std::filesystem;

constexpr char kPresetVariable[] = "VOXCONV_PRESET_DIR";

HeuristicPlanner::Config ReadPlanner(const Json& object, absl::Status& error) {
  JsonReader reader(object, "planner", {"kind", "threshold", "narrow", "wide"}, error);
  reader.OneOf("kind", {"heuristic"});
  HeuristicPlanner::Config planner;
  planner.channel_threshold =
      reader.Integer("threshold", 0, int64_t{1} << 40, planner.channel_threshold);
  planner.narrow = reader.Text("narrow");
  planner.wide = reader.Text("wide");
  return planner;
}

std::vector<LayerOverride> ReadLayers(const Json& object, absl::Status& error) {
  const JsonReader layers(object, "layers", error);
  std::vector<LayerOverride> overrides;
  for (const auto& [name, specs] : object.items()) {
    JsonReader reader(specs, layers.PathOf(name.c_str()), {"mapping", "dataflow"}, error);
    LayerOverride layer{name, {}};
    layer.choice.mapping = reader.Text("mapping", "");
    layer.choice.dataflow = reader.Text("dataflow", "");
    overrides.push_back(std::move(layer));
  }
  return overrides;
}

std::vector<std::pair<std::string, std::string>> ReadChoices(const Json& object,
                                                             absl::Status& error) {
  JsonReader reader(object, "choices", error);
  std::vector<std::pair<std::string, std::string>> choices;
  for (const auto& [part, place] : object.items()) {
    choices.emplace_back(part, reader.Text(part.c_str()));
  }
  return choices;
}

// Writes `spec` with all its options; an empty one stays empty. `part` tells where it stands where
// the message of the registry, which names the family, does not.
template <typename Plugin>
absl::Status ResolveSpec(const PluginFamily<Plugin>& family, absl::string_view part,
                         std::string& spec) {
  if (spec.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> in_full = family.InFull(spec);
  if (!in_full.ok()) return part.empty() ? in_full.status() : StatusAt(part, in_full.status());
  spec = *std::move(in_full);
  return absl::OkStatus();
}

absl::StatusOr<Configuration> ParseSpecs(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  const bool complete = std::none_of(parts.begin(), parts.end(),
                                     [](const std::string& part) { return part.empty(); });
  if (parts.size() > 3 || !complete) {
    return absl::InvalidArgumentError(absl::StrCat(
        "configuration '", text, "': allowed are a preset (", absl::StrJoin(ListPresets(), ", "),
        ") or MAPPING/DATAFLOW or MAPPING/DATAFLOW/OUTPUT_COORDS"));
  }
  Configuration configuration;
  configuration.choice.mapping = parts[0];
  configuration.choice.dataflow = parts[1];
  if (parts.size() == 3) configuration.choice.output_coords = parts[2];
  return configuration;
}

}  // namespace

std::shared_ptr<const Planner> MakePlanner(const Configuration& configuration) {
  if (!configuration.plan.empty()) {
    return std::make_shared<ListedPlanner>(configuration.plan, configuration.choice);
  }
  std::shared_ptr<const Planner> planner;
  if (configuration.heuristic.has_value()) {
    HeuristicPlanner::Config heuristic = *configuration.heuristic;
    heuristic.mapping = configuration.choice.mapping;
    heuristic.output_coords = configuration.choice.output_coords;
    planner = std::make_shared<HeuristicPlanner>(std::move(heuristic));
  } else {
    planner = std::make_shared<FixedPlanner>(configuration.choice);
  }
  if (configuration.layers.empty()) return planner;
  return std::make_shared<OverridePlanner>(std::move(planner), configuration.layers);
}

absl::StatusOr<Preset> ParsePreset(absl::string_view json) {
  VOXCONV_ASSIGN_OR_RETURN(const Json object, ParseJson(json));
  absl::Status error;
  JsonReader reader(object, "",
                    {"name", "summary", "source", "choices", "departs", "mapping", "dataflow",
                     "output_coords", "planner", "layers"},
                    error);
  Preset preset;
  Configuration& configuration = preset.configuration;
  preset.name = reader.Text("name");
  preset.summary = reader.Text("summary");
  preset.source = reader.Text("source");
  configuration.choice.mapping = reader.Text("mapping");
  configuration.choice.dataflow = reader.Text("dataflow");
  configuration.choice.output_coords = reader.Text("output_coords", "");
  if (reader.Has("planner")) {
    configuration.heuristic = ReadPlanner(reader.Object("planner"), error);
  }
  if (reader.Has("choices")) preset.choices = ReadChoices(reader.Object("choices"), error);
  preset.departs = reader.Texts("departs");
  if (reader.Has("layers")) configuration.layers = ReadLayers(reader.Object("layers"), error);
  if (!error.ok()) return error;
  return preset;
}

std::vector<std::string> PresetDirectories() {
  return DataDirectories(kPresetVariable, "presets", "presets");
}

std::vector<std::string> ListPresets() {
  std::set<std::string> names;
  for (const std::string& directory : PresetDirectories()) {
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().stem().string();
      if (it->path().extension() == ".json" && name != kDefaultsName) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<Preset> LoadPreset(absl::string_view name) {
  VOXCONV_RETURN_IF_ERROR(CheckDataDirectory(kPresetVariable));
  const std::vector<std::string> names = ListPresets();
  // Only listed names are looked for, so that no name can lead out of the folders.
  if (!std::binary_search(names.begin(), names.end(), name)) {
    return absl::NotFoundError(
        absl::StrCat("preset '", name, "' is unknown; there are ", absl::StrJoin(names, ", ")));
  }
  for (const std::string& directory : PresetDirectories()) {
    const fs::path path = fs::path(directory) / absl::StrCat(name, ".json");
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path.string()));
    absl::StatusOr<Preset> preset = ParsePreset(text);
    if (!preset.ok()) return StatusAt(path.string(), preset.status());
    if (preset->name != name) {
      return absl::InvalidArgumentError(absl::StrCat(
          path.string(), ": key 'name' is '", preset->name, "'; it must be the file's name"));
    }
    return preset;
  }
  return absl::NotFoundError(absl::StrCat("preset '", name, "' cannot be read"));
}

absl::StatusOr<Configuration> Resolve(const Configuration& configuration,
                                      const Registry& registry) {
  Configuration resolved = configuration;
  const auto mapping = [&](absl::string_view part, std::string& spec) {
    return ResolveSpec(registry.mappings(), part, spec);
  };
  const auto dataflow = [&](absl::string_view part, std::string& spec) {
    return ResolveSpec(registry.dataflows(), part, spec);
  };
  const auto output_coords = [&](absl::string_view part, std::string& spec) {
    return ResolveSpec(registry.output_coords(), part, spec);
  };
  if (resolved.choice.output_coords.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(const Defaults defaults, LoadDefaults());
    resolved.choice.output_coords = defaults.output_coords;
  }
  VOXCONV_RETURN_IF_ERROR(mapping("", resolved.choice.mapping));
  VOXCONV_RETURN_IF_ERROR(dataflow("", resolved.choice.dataflow));
  VOXCONV_RETURN_IF_ERROR(output_coords("", resolved.choice.output_coords));
  if (resolved.heuristic.has_value()) {
    VOXCONV_RETURN_IF_ERROR(dataflow("planner narrow", resolved.heuristic->narrow));
    VOXCONV_RETURN_IF_ERROR(dataflow("planner wide", resolved.heuristic->wide));
  }
  for (LayerOverride& layer : resolved.layers) {
    const std::string part = absl::StrCat("layer '", layer.pattern, "'");
    VOXCONV_RETURN_IF_ERROR(mapping(part, layer.choice.mapping));
    VOXCONV_RETURN_IF_ERROR(dataflow(part, layer.choice.dataflow));
  }
  for (PlannedLayer& layer : resolved.plan) {
    const std::string part = absl::StrCat("layer '", layer.name, "'");
    VOXCONV_RETURN_IF_ERROR(mapping(part, layer.choice.mapping));
    VOXCONV_RETURN_IF_ERROR(dataflow(part, layer.choice.dataflow));
    VOXCONV_RETURN_IF_ERROR(output_coords(part, layer.choice.output_coords));
  }
  return resolved;
}

absl::StatusOr<Configuration> ResolveConfig(absl::string_view text, const Registry& registry) {
  Configuration configuration;
  if (text.find('/') != absl::string_view::npos) {
    VOXCONV_ASSIGN_OR_RETURN(configuration, ParseSpecs(text));
  } else {
    absl::StatusOr<Preset> preset = LoadPreset(text);
    if (absl::IsNotFound(preset.status())) {
      return absl::NotFoundError(
          absl::StrCat(preset.status().message(), "; or give MAPPING/DATAFLOW"));
    }
    if (!preset.ok()) return preset.status();
    configuration = preset->configuration;
  }
  absl::StatusOr<Configuration> resolved = Resolve(configuration, registry);
  if (!resolved.ok()) return StatusAt(absl::StrCat("'", text, "'"), resolved.status());
  return resolved;
}

Json ToJson(const Configuration& configuration) {
  Json json = {{"mapping", configuration.choice.mapping},
               {"dataflow", configuration.choice.dataflow},
               {"output_coords", configuration.choice.output_coords}};
  if (const std::optional<HeuristicPlanner::Config>& planner = configuration.heuristic) {
    json["planner"] = {{"kind", "heuristic"},
                       {"threshold", planner->channel_threshold},
                       {"narrow", planner->narrow},
                       {"wide", planner->wide}};
  }
  for (const LayerOverride& layer : configuration.layers) {
    Json& specs = json["layers"][layer.pattern] = Json::object();
    if (!layer.choice.mapping.empty()) specs["mapping"] = layer.choice.mapping;
    if (!layer.choice.dataflow.empty()) specs["dataflow"] = layer.choice.dataflow;
  }
  for (const PlannedLayer& layer : configuration.plan) {
    json["plan"][layer.name] = {{"mapping", layer.choice.mapping},
                                {"dataflow", layer.choice.dataflow},
                                {"output_coords", layer.choice.output_coords}};
  }
  return json;
}

}  // namespace voxconv::measure
