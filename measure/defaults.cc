// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/defaults.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/json_reader.h"
#include "voxconv/measure/preset.h"

namespace voxconv::measure {
namespace {

LayerChoice ReadChoice(JsonReader& parent, const char* key) {
  JsonReader reader(parent.Object(key), parent.PathOf(key),
                    {"mapping", "dataflow", "output_coords"}, parent.error());
  LayerChoice choice;
  choice.mapping = reader.Text("mapping");
  choice.dataflow = reader.Text("dataflow");
  choice.output_coords = reader.Text("output_coords");
  return choice;
}

}  // namespace

absl::StatusOr<LayerChoice> Defaults::LayersOn(BackendKind backend) const {
  const auto found = layers.find(backend);
  if (found != layers.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      kDefaultsName, ".json: key 'layers' has no entry for the backend ", ToString(backend)));
}

absl::StatusOr<Defaults> ParseDefaults(absl::string_view json) {
  VOXCONV_ASSIGN_OR_RETURN(const Json object, ParseJson(json));
  absl::Status error;
  JsonReader reader(object, "",
                    {"layers", "single_layer", "output_coords", "trusted", "baseline", "heuristic"},
                    error);
  Defaults defaults;
  JsonReader layers(reader.Object("layers"), "layers", {"cpu", "cuda"}, error);
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    const std::string key(ToString(backend));
    if (layers.Has(key.c_str())) defaults.layers[backend] = ReadChoice(layers, key.c_str());
  }
  defaults.single_layer = ReadChoice(reader, "single_layer");
  defaults.output_coords = reader.Text("output_coords");
  defaults.trusted = ReadChoice(reader, "trusted");
  JsonReader baseline(reader.Object("baseline"), "baseline", {"mapping", "dataflow"}, error);
  defaults.baseline_mapping = baseline.Text("mapping");
  defaults.baseline_dataflow = baseline.Text("dataflow");
  JsonReader heuristic(reader.Object("heuristic"), "heuristic", {"narrow", "wide"}, error);
  defaults.narrow = heuristic.Text("narrow");
  defaults.wide = heuristic.Text("wide");
  if (!error.ok()) return error;
  return defaults;
}

absl::StatusOr<Defaults> LoadDefaults() {
  const std::vector<std::string> directories = PresetDirectories();
  for (const std::string& directory : directories) {
    const std::string path = absl::StrCat(directory, "/", kDefaultsName, ".json");
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path));
    absl::StatusOr<Defaults> defaults = ParseDefaults(text);
    if (defaults.ok()) return defaults;
    return StatusAt(path, defaults.status());
  }
  return absl::NotFoundError(absl::StrCat(
      kDefaultsName, ".json is in none of the preset folders: ", absl::StrJoin(directories, ", ")));
}

}  // namespace voxconv::measure
