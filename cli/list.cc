// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/session.h"
#include "voxconv/measure/preset.h"

namespace voxconv::cli {
namespace {

using Json = nlohmann::ordered_json;

Json SupportJson(const Support& support) {
  return support.ok ? Json{{"supported", true}}
                    : Json{{"supported", false}, {"reason", support.reason}};
}

// What the default instance of a plugin supports, kind by kind or dtype by dtype.
template <typename Plugin>
Json GeometrySupport(const Plugin& plugin) {
  Json support = Json::object();
  for (ConvKind kind :
       {ConvKind::kSubmanifold, ConvKind::kStrided, ConvKind::kInverse, ConvKind::kTransposed}) {
    if (std::is_same_v<Plugin, OutputCoords> && kind != ConvKind::kStrided &&
        kind != ConvKind::kTransposed) {
      continue;
    }
    GeometryParams params{.kind = kind};
    if (kind != ConvKind::kSubmanifold) params.stride = {2, 2, 2};
    if (kind == ConvKind::kInverse || kind == ConvKind::kTransposed) {
      params.input_tensor_stride = {2, 2, 2};
    }
    support[std::string(ToString(kind))] =
        SupportJson(plugin.Supports(*ConvGeometry::Create(params)));
  }
  return support;
}

Json SupportOf(const Mapping& plugin) { return GeometrySupport(plugin); }
Json SupportOf(const OutputCoords& plugin) { return GeometrySupport(plugin); }
Json SupportOf(const Dataflow& plugin) {
  Json support = Json::object();
  for (Precision precision :
       {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
    support[std::string(ToString(precision))] =
        SupportJson(plugin.Supports(Pass::kForward, {16, 16, /*num_offsets=*/27, /*symmetric=*/true,
                                                     ConvTypes::Of(precision)}));
  }
  return support;
}

// What users of the plugin should know.
Json NotesOf(const Mapping&) { return Json::array(); }
Json NotesOf(const OutputCoords&) { return Json::array(); }
Json NotesOf(const Dataflow& plugin) {
  Json notes = Json::array();
  for (Precision precision :
       {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
    const Capability capability = plugin.CapabilityOf(
        Pass::kForward, {16, 16, /*num_offsets=*/27, /*symmetric=*/true, ConvTypes::Of(precision)});
    if (!capability.support.ok || capability.isolates_weights) continue;
    notes.push_back("a weight that is NaN or infinite may reach outputs that do not use it");
    break;
  }
  return notes;
}

Json OptionsJson(const OptionSchema& schema) {
  Json options = Json::array();
  for (const OptionSpec& spec : schema.specs()) {
    options.push_back({{"name", spec.name},
                       {"type", ToString(spec.type)},
                       {"default", spec.default_value},
                       {"allowed", spec.Allowed()},
                       {"help", spec.help}});
  }
  return options;
}

template <typename Plugin>
Json FamilyJson(const PluginFamily<Plugin>& family, BackendKind backend) {
  Json plugins = Json::array();
  for (const auto& [name, entry] : family.entries()) {
    Json plugin = {{"name", name},
                   {"summary", entry.description.summary},
                   {"source", entry.description.source},
                   {"options", OptionsJson(entry.description.options)}};
    plugin["notes"] = Json::array();
    const absl::StatusOr<Json> support =
        WithoutExceptions([&, &name = name]() -> absl::StatusOr<Json> {
          VOXCONV_ASSIGN_OR_RETURN(const auto instance, family.Create(name, backend));
          plugin["notes"] = NotesOf(*instance);
          return SupportOf(*instance);
        });
    plugin[support.ok() ? "supports" : "unavailable"] =
        support.ok() ? *support : Json(std::string(support.status().message()));
    plugins.push_back(std::move(plugin));
  }
  return plugins;
}

std::string SupportText(const Json& plugin) {
  if (plugin.contains("unavailable")) {
    return absl::StrCat("unavailable: ", plugin["unavailable"].get<std::string>());
  }
  std::string yes, no;
  for (const auto& [what, support] : plugin["supports"].items()) {
    if (support["supported"].get<bool>()) {
      absl::StrAppend(&yes, yes.empty() ? "" : ", ", what);
    } else {
      absl::StrAppend(&no, "; not ", what, ": ", support["reason"].get<std::string>());
    }
  }
  return absl::StrCat("supports ", yes.empty() ? "nothing" : yes, no);
}

void PrintFamily(const std::string& family, const Json& plugins) {
  const auto text = [](const Json& json, const char* key) { return json[key].get<std::string>(); };
  std::cout << Styled(Style::kBold, family) << "\n";
  for (const Json& plugin : plugins) {
    std::cout << Wrapped(absl::StrCat("  ", text(plugin, "name"), ": "),
                         absl::StrCat(text(plugin, "summary"), " [", text(plugin, "source"), "]"),
                         6)
              << Wrapped("    ", SupportText(plugin), 6);
    for (const Json& note : plugin["notes"]) {
      std::cout << Wrapped("    ", note.get<std::string>(), 6);
    }
    for (const Json& option : plugin["options"]) {
      std::cout << Wrapped(absl::StrCat("    ", text(option, "name"), "=", text(option, "default"),
                                        "  (", text(option, "allowed"), ")  "),
                           text(option, "help"), 8);
    }
  }
}

Json PresetsJson() {
  Json presets = Json::array();
  for (const std::string& name : measure::ListPresets()) {
    const absl::StatusOr<measure::Preset> preset = measure::LoadPreset(name);
    if (!preset.ok()) {
      presets.push_back({{"name", name}, {"unavailable", std::string(preset.status().message())}});
      continue;
    }
    Json choices = Json::object();
    for (const auto& [part, place] : preset->choices) choices[part] = place;
    presets.push_back({{"name", preset->name},
                       {"summary", preset->summary},
                       {"source", preset->source},
                       {"choices", choices},
                       {"departs", preset->departs},
                       {"configuration", measure::ToJson(preset->configuration)}});
  }
  return presets;
}

void PrintPresets(const Json& presets) {
  std::cout << Styled(Style::kBold, "presets") << "\n";
  for (const Json& preset : presets) {
    const auto text = [&](const char* key) { return preset[key].get<std::string>(); };
    if (preset.contains("unavailable")) {
      std::cout << Wrapped(absl::StrCat("  ", text("name"), ": unavailable: "), text("unavailable"),
                           6);
      continue;
    }
    std::cout << Wrapped(absl::StrCat("  ", text("name"), ": "),
                         absl::StrCat(text("summary"), " [", text("source"), "]"), 6);
    for (const auto& [part, place] : preset["choices"].items()) {
      std::cout << Wrapped(absl::StrCat("    ", part, ": "), place.get<std::string>(), 8);
    }
    for (const Json& departs : preset["departs"]) {
      std::cout << Wrapped("    departs: ", departs.get<std::string>(), 8);
    }
  }
}

}  // namespace

absl::Status RunList(const std::vector<std::string>& args) {
  po::options_description options("Output");
  options.add_options()("json", po::bool_switch(), "print one JSON object for programs");
  options.add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("list [OPTIONS]", options, {}, args));
  // No backend is opened: what would run on a device can be listed without one.
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind backend,
                           ParseBackendKind(values["backend"].as<std::string>()));
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(RegisterPlugins(values, registry));
  const Json presets = PresetsJson();
  const Json families = {{"mapping", FamilyJson(registry.mappings(), backend)},
                         {"dataflow", FamilyJson(registry.dataflows(), backend)},
                         {"output_coords", FamilyJson(registry.output_coords(), backend)}};
  if (values["json"].as<bool>()) {
    Json all = families;
    all["presets"] = presets;
    std::cout << all.dump(2) << "\n";
    return absl::OkStatus();
  }
  for (const auto& [family, plugins] : families.items()) PrintFamily(family, plugins);
  PrintPresets(presets);
  return absl::OkStatus();
}

}  // namespace voxconv::cli
