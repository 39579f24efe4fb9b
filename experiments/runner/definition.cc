// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/definition.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/parse.h"
#include "voxconv/experiments/runner/published.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/json_reader.h"
#include "voxconv/networks/models.h"

namespace voxconv::experiment {
namespace {

using measure::Json;
using Names = std::vector<std::string>;

// An array of nothing would pass for one that is not given.
void RefuseEmpty(JsonReader& reader, absl::Span<const char* const> keys) {
  for (const char* key : keys) {
    const Json* value = reader.Find(key);
    if (value != nullptr && value->is_array() && value->empty()) {
      reader.Refuse(key, "is an array that is not empty");
    }
  }
}

Names ReadBackends(JsonReader& reader) {
  RefuseEmpty(reader, {"backends"});
  const Names backends = reader.Texts("backends");
  for (const std::string& backend : backends) {
    if (backend != "cpu" && backend != "cuda")
      reader.Refuse("backends", "are \"cpu\" and \"cuda\"");
  }
  return backends;
}

RowOrder ReadOrder(JsonReader& reader, const char* key, const std::string& text) {
  const absl::StatusOr<RowOrder> order = ParseRowOrder(text);
  if (!order.ok()) reader.Refuse(key, "are scan, sorted, shuffled and morton");
  return order.value_or(RowOrder::kScan);
}

InputSource ReadInput(const Json& json, const std::string& path, absl::Status& error) {
  InputSource source;
  if (json.is_string()) {
    source.input = source.name = json.get<std::string>();
    return source;
  }
  JsonReader reader(json, path,
                    {"input", "name", "like", "data", "voxel_size", "range", "order", "x", "fields",
                     "dtype_in", "array", "samples", "unit_sphere", "backends", "batch"},
                    error);
  source.input = reader.Text("input");
  source.name = reader.Text("name", source.input);
  source.like = reader.Text("like", "");
  source.data = reader.Text("data", "");
  if (const std::optional<double> size = reader.Number("voxel_size")) {
    if (*size <= 0) reader.Refuse("voxel_size", "are numbers above 0");
    source.voxel_size = absl::StrCat(*size);
  }
  source.range = reader.Text("range", "");
  if (!source.range.empty() && !ParseRange("range", source.range).ok()) {
    reader.Refuse("range", "are texts such as \"-50,-50,-3,50,50,1\"");
  }
  if (reader.Has("order")) source.order = ReadOrder(reader, "order", reader.Text("order"));
  source.x = reader.Number("x");
  source.read.fields = reader.Text("fields", "");
  source.read.dtype_in = reader.Text("dtype_in", "");
  source.read.array = reader.Text("array", "");
  source.read.samples = reader.Integer("samples", 1, int64_t{1} << 32, source.read.samples);
  source.read.into_unit_sphere = reader.Flag("unit_sphere", false);
  source.backends = ReadBackends(reader);
  RefuseEmpty(reader, {"batch"});
  source.batch = reader.Texts("batch");
  return source;
}

std::vector<InputSource> ReadInputs(JsonReader& reader, const char* key) {
  std::vector<InputSource> inputs;
  reader.Each(key, [&](const Json& element, const std::string& path) {
    inputs.push_back(ReadInput(element, path, reader.error()));
  });
  return inputs;
}

std::vector<int64_t> ReadResolutions(JsonReader& reader, const char* key) {
  std::vector<int64_t> values;
  reader.Each(key, [&](const Json& element, const std::string& path) {
    constexpr int64_t kMost = 65536;  // of a table's 16-bit position tags
    if (element.is_number_unsigned() && element.get<uint64_t>() >= 1 &&
        element.get<uint64_t>() <= kMost) {
      return values.push_back(element.get<int64_t>());
    }
    RefuseValue(path, element, absl::StrCat("are whole numbers 1 .. ", kMost), reader.error());
  });
  return values;
}

WorkItem ReadNetwork(const Json& json, const std::string& path, absl::Status& error) {
  Json object = json;
  if (json.is_string()) object = {{"network", json}};
  JsonReader reader(object, path, {"network", "width"}, error);
  WorkItem work;
  work.network.name = reader.OneOf("network", ModelNames());
  work.network.width = reader.Number("width").value_or(1);
  if (!(work.network.width > 0)) reader.Refuse("width", "are numbers above 0");
  work.label = work.network.name;
  if (work.network.width != 1) absl::StrAppend(&work.label, " x", work.network.width);
  return work;
}

std::vector<std::pair<int64_t, int64_t>> ReadChannels(JsonReader& reader) {
  std::vector<std::pair<int64_t, int64_t>> channels;
  reader.Each("channels", [&](const Json& element, const std::string& path) {
    constexpr int64_t kMost = 65536;
    const auto valid = [](const Json& value) {
      return value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
             value.get<uint64_t>() <= kMost;
    };
    if (element.is_array() && element.size() == 2 && valid(element[0]) && valid(element[1])) {
      channels.emplace_back(element[0].get<int64_t>(), element[1].get<int64_t>());
      return;
    }
    RefuseValue(path, element, absl::StrCat("are [C_IN, C_OUT], each 1 .. ", kMost),
                reader.error());
  });
  return channels;
}

// "3", or "3x1x1" where the axes differ.
std::string AxesText(const Int3& v) {
  if (v == Int3{v.x, v.x, v.x}) return absl::StrCat(v.x);
  return absl::StrCat(v.x, "x", v.y, "x", v.z);
}

// "submanifold k3", "strided k3x1x1 s2x1x1 dilate p1": all that is not as usual.
std::string LabelOf(const GeometryParams& geometry) {
  std::string label = absl::StrCat(ToString(geometry.kind), " k", AxesText(geometry.kernel));
  const auto add = [&](const char* mark, const Int3& value, int32_t usual) {
    if (value == Int3{usual, usual, usual}) return;
    absl::StrAppend(&label, " ", mark, AxesText(value));
  };
  add("s", geometry.stride, 1);
  add("d", geometry.dilation, 1);
  if (geometry.rule == OutputRule::kDilate) absl::StrAppend(&label, " dilate");
  add("p", geometry.padding, 0);
  return label;
}

// A layer for every entry of its "channels".
std::vector<WorkItem> ReadLayer(const Json& json, const std::string& path, CellKind kind,
                                absl::Status& error) {
  JsonReader reader(json, path,
                    {"kind", "rule", "kernel", "stride", "dilation", "padding", "channels"}, error);
  GeometryParams geometry;
  const auto kind_name = ParseConvKind(reader.OneOf(
      "kind", {"submanifold", "strided", "inverse", "transposed", "generative"}, "submanifold"));
  const auto rule = ParseOutputRule(reader.OneOf("rule", {"quantize", "dilate"}, "quantize"));
  geometry.kind = kind_name.value_or(ConvKind::kSubmanifold);
  geometry.rule = rule.value_or(OutputRule::kQuantize);
  if (reader.Has("rule") && geometry.kind != ConvKind::kStrided &&
      geometry.kind != ConvKind::kInverse) {
    reader.Refuse("rule", absl::StrCat("in ", ToString(geometry.kind), " layers is no such key"));
  }
  for (const auto& [key, value] : {std::pair("kernel", &geometry.kernel),
                                   {"stride", &geometry.stride},
                                   {"dilation", &geometry.dilation},
                                   {"padding", &geometry.padding}}) {
    const std::optional<std::string> text = reader.Triple(key);
    if (!text.has_value()) continue;
    const absl::StatusOr<Int3> parsed = ParseInt3(key, *text);
    if (!parsed.ok()) reader.Refuse(key, "are one whole number or [x, y, z]");
    if (parsed.ok()) *value = *parsed;
  }
  // As it is placed on an input (measure/layer_work.h).
  GeometryParams placed = geometry;
  if (geometry.kind == ConvKind::kInverse || geometry.kind == ConvKind::kTransposed) {
    const Int3& s = geometry.stride;
    if (s.x >= 1 && s.y >= 1 && s.z >= 1) placed.input_tensor_stride = s;
  }
  const auto created = ConvGeometry::Create(placed);
  if (!created.ok() && error.ok()) {
    error =
        absl::InvalidArgumentError(absl::StrCat("key '", path, "': ", created.status().message()));
  }
  const std::string label = LabelOf(geometry);
  if (kind == CellKind::kMap) {
    if (reader.Has("channels")) reader.Refuse("channels", "in map experiments is no such key");
    return {{label, {}, {geometry, 16, 16}}};
  }
  std::vector<WorkItem> works;
  for (const auto& [c_in, c_out] : ReadChannels(reader)) {
    works.push_back({absl::StrCat(label, " ", c_in, "->", c_out), {}, {geometry, c_in, c_out}});
  }
  if (works.empty()) reader.Refuse("channels", "is an array of [C_IN, C_OUT]");
  return works;
}

std::vector<WorkItem> ReadWorks(JsonReader& reader, CellKind kind, const char* networks,
                                const char* layers) {
  std::vector<WorkItem> works;
  const bool whole = kind == CellKind::kNetwork || kind == CellKind::kInfo;
  if (const char* other = whole ? layers : networks; reader.Has(other)) {
    reader.Refuse(other, absl::StrCat("with this kind is ", whole ? networks : layers));
  }
  reader.Each(whole ? networks : layers, [&](const Json& element, const std::string& path) {
    if (whole) return works.push_back(ReadNetwork(element, path, reader.error()));
    const auto layer = ReadLayer(element, path, kind, reader.error());
    works.insert(works.end(), layer.begin(), layer.end());
  });
  return works;
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// `json` with {NAME} replaced: the whole text by the value itself, as part of a text by its text.
Json Substitute(const Json& json, const Json& params) {
  if (json.is_object() || json.is_array()) {
    Json result = json;
    for (auto it = result.begin(); it != result.end(); ++it) *it = Substitute(*it, params);
    return result;
  }
  if (!json.is_string()) return json;
  std::string text = json.get<std::string>();
  for (const auto& [name, value] : params.items()) {
    const std::string slot = absl::StrCat("{", name, "}");
    if (text == slot) return value;
    text = absl::StrReplaceAll(text, {{slot, TextOf(value)}});
  }
  return text;
}

// Every choice of one value a name, the last name fastest.
std::vector<Json> ExpandFor(JsonReader& reader) {
  std::vector<Json> all = {Json::object()};
  const Json* axes = reader.Find("for");
  if (axes == nullptr) return all;
  if (!axes->is_object()) {
    reader.Refuse("for", "is an object of arrays");
    return all;
  }
  for (const auto& [name, values] : axes->items()) {
    if (!values.is_array() || values.empty()) {
      RefuseValue(absl::StrCat(reader.PathOf("for"), ".", name), values,
                  "is an array that is not empty", reader.error());
      continue;
    }
    constexpr size_t kMost = 4096;
    if (all.size() * values.size() > kMost) {
      RefuseValue(
          absl::StrCat(reader.PathOf("for"), ".", name), values,
          absl::StrCat("are ", kMost, " configurations at most, the product of all lengths"),
          reader.error());
      return all;
    }
    std::vector<Json> longer;
    for (const Json& params : all) {
      for (const Json& value : values) {
        longer.push_back(params);
        longer.back()[name] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

// One dtype or several, for all backends or by backend: "f16", ["f32", "f16"], {"cuda": "f16"}.
std::map<BackendKind, std::vector<Precision>> ReadPrecisions(JsonReader& reader, const char* key) {
  std::map<BackendKind, std::vector<Precision>> precisions;
  const Json* value = reader.Find(key);
  if (value == nullptr) return precisions;
  const auto read = [&](const Json& names, BackendKind backend) {
    for (const Json& name : names.is_array() ? names : Json::array({names})) {
      const absl::StatusOr<Precision> precision =
          name.is_string() ? ParsePrecision(name.get<std::string>())
                           : absl::StatusOr<Precision>(absl::InvalidArgumentError(""));
      if (!precision.ok()) return reader.Refuse(key, "are f32, tf32, f16 and bf16");
      precisions[backend].push_back(*precision);
    }
  };
  if (!value->is_object()) {
    read(*value, BackendKind::kCpu);
    read(*value, BackendKind::kCuda);
    return precisions;
  }
  for (const auto& [name, names] : value->items()) {
    const absl::StatusOr<BackendKind> backend = ParseBackendKind(name);
    if (!backend.ok()) reader.Refuse(key, "keys are cpu and cuda");
    if (backend.ok()) read(names, *backend);
  }
  return precisions;
}

std::vector<ConfigurationItem> ReadConfigurations(JsonReader& reader) {
  std::vector<ConfigurationItem> items;
  reader.Each("configurations", [&](const Json& element, const std::string& path) {
    JsonReader entry(element, path, {"name", "spec", "against", "dtype", "for", "backends"},
                     reader.error());
    const std::string name = entry.Text("name");
    const Json* spec = entry.Find("spec");
    if (spec == nullptr || !(spec->is_string() || spec->is_object())) {
      entry.Refuse("spec", "are a text, as for `voxconv ab`, and an object with a preset's keys");
      return;
    }
    Json against = Json::array({""});  // the baseline
    if (const Json* names = entry.Find("against")) {
      against = names->is_array() ? *names : Json::array({*names});
    }
    std::map<BackendKind, Precision> precision;
    for (const auto& [backend, precisions] : ReadPrecisions(entry, "dtype")) {
      if (precisions.size() > 1) {
        entry.Refuse("dtype", "is one of f32, tf32, f16 and bf16 a backend");
      }
      if (!precisions.empty()) precision[backend] = precisions.front();
    }
    const Names backends = ReadBackends(entry);
    for (const Json& params : ExpandFor(entry)) {
      items.push_back({TextOf(Substitute(name, params)),
                       Substitute(*spec, params),
                       {},
                       precision,
                       params,
                       backends});
      for (const Json& other : against) {
        if (!other.is_string()) entry.Refuse("against", "are a name and an array of names");
        items.back().against.push_back(TextOf(Substitute(other, params)));
      }
    }
  });
  return items;
}

// Fills in side B of each configuration.
void LinkSides(JsonReader& reader, Definition& definition) {
  std::set<std::string> names;
  for (const ConfigurationItem& item : definition.configurations) {
    if (names.insert(item.name).second || !reader.error().ok()) continue;
    reader.error() = absl::InvalidArgumentError(absl::StrCat(
        "key 'configurations' has two named '", item.name, "'; allowed are names that differ"));
  }
  if (definition.configurations.empty()) reader.Refuse("configurations", "is a filled array");
  if (definition.kind == CellKind::kInfo) {
    for (ConfigurationItem& item : definition.configurations) item.against.clear();
    if (reader.Has("baseline")) reader.Refuse("baseline", "in info experiments is no such key");
    return;
  }
  definition.baseline = reader.OneOf("baseline", Names(names.begin(), names.end()));
  for (ConfigurationItem& item : definition.configurations) {
    const bool by_default = item.against == Names{""};
    if (by_default) item.against = {definition.baseline};
    const bool itself = std::erase(item.against, item.name) > 0;
    // One of several that a "for" makes may be what the others are held against.
    if (!by_default && itself && item.against.empty() && item.params.empty() &&
        reader.error().ok()) {
      reader.error() = absl::InvalidArgumentError(
          absl::StrCat("key 'against' of configuration '", item.name,
                       "' names itself alone; allowed are the names of others"));
    }
    for (const std::string& against : item.against) {
      if (names.contains(against) || !reader.error().ok()) continue;
      reader.error() = absl::InvalidArgumentError(
          absl::StrCat("key 'against' of configuration '", item.name, "' is '", against,
                       "'; allowed are ", absl::StrJoin(names, ", ")));
    }
  }
  const bool any = std::any_of(definition.configurations.begin(), definition.configurations.end(),
                               [](const ConfigurationItem& item) { return !item.against.empty(); });
  if (!any && !definition.configurations.empty()) {
    reader.Refuse("configurations", "are two or more, of which one is held against another");
  }
}

CellKind ReadKind(JsonReader& reader) {
  const std::string kind = reader.OneOf("kind", {"network", "layer", "map", "info"});
  if (kind == "network") return CellKind::kNetwork;
  if (kind == "map") return CellKind::kMap;
  return kind == "info" ? CellKind::kInfo : CellKind::kLayer;
}

void ReadOrders(JsonReader& reader, Definition& definition) {
  for (const std::string& text : reader.Texts("orders")) {
    const RowOrder order = ReadOrder(reader, "orders", text);
    const auto& known = definition.orders;
    if (std::find(known.begin(), known.end(), order) != known.end()) {
      reader.Refuse("orders", "are orders that differ");
    }
    definition.orders.push_back(order);
  }
}

void ReadFactors(JsonReader& reader, Definition& definition) {
  definition.precisions = ReadPrecisions(reader, "dtypes");
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    if (definition.precisions[backend].empty()) definition.precisions[backend] = {Precision::kF32};
  }
  for (const std::string& maps : reader.Texts("maps")) {
    if (maps != "rebuilt" && maps != "reused") {
      reader.Refuse("maps", "are \"rebuilt\" and \"reused\"");
    }
    if (definition.kind == CellKind::kMap && maps == "reused") {
      reader.Refuse("maps", "in map experiments, which time the making of maps, is \"rebuilt\"");
    }
    definition.rebuild_maps.push_back(maps == "rebuilt");
  }
  if (definition.rebuild_maps.empty()) definition.rebuild_maps = {true};
  definition.stage_times = reader.Flag("stage_times", false);
  if (definition.stage_times && definition.kind != CellKind::kNetwork) {
    reader.Refuse("stage_times", "is false; only those of networks are times of their own");
  }
  Names stages;
  for (int i = 0; i < kNumStages; ++i) stages.emplace_back(ToString(static_cast<Stage>(i)));
  for (const StageGroup& group : StageGroups()) stages.emplace_back(group.name);
  definition.counters_stage = reader.OneOf("counters_stage", stages, "");
}

}  // namespace

std::vector<InputSource> DefaultInputs() {
  InputSource outdoor{.name = "lidar64", .like = "outdoor-64", .input = "scene:lidar64"};
  InputSource indoor{.name = "room", .like = "indoor", .input = "scene:room"};
  indoor.voxel_size = "0.02";
  return {outdoor, indoor};
}

std::vector<InputSource> DefaultQuickInputs() {
  return {{.name = "quick", .input = "scene:uniform?n=500&box=13"}};
}

const Names& InputKinds() {
  static const Names* const kKinds = new Names{"outdoor-64", "outdoor-32", "indoor", "object"};
  return *kKinds;
}

absl::StatusOr<std::vector<InputSource>> ParseInputs(absl::string_view text) {
  VOXCONV_ASSIGN_OR_RETURN(const Json json, measure::ParseJson(text));
  absl::Status error;
  const Json document = {{"inputs", json}};
  JsonReader reader(document, "", {"inputs"}, error);
  std::vector<InputSource> inputs = ReadInputs(reader, "inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Names& kinds = InputKinds();
    const std::string& like = inputs[i].like;
    if (like.empty() || std::find(kinds.begin(), kinds.end(), like) != kinds.end()) continue;
    RefuseValue(absl::StrCat("inputs[", i, "].like"), like,
                absl::StrCat("are ", absl::StrJoin(kinds, ", ")), error);
  }
  if (!error.ok()) return error;
  return inputs;
}

absl::StatusOr<Definition> ParseDefinition(absl::string_view text) {
  Definition definition;
  VOXCONV_ASSIGN_OR_RETURN(definition.json, measure::ParseJson(text));
  absl::Status error;
  JsonReader reader(definition.json, "",
                    {"name",
                     "title",
                     "source",
                     "about",
                     "kind",
                     "backends",
                     "inputs",
                     "quick_inputs",
                     "given_inputs",
                     "resolutions",
                     "quick_resolutions",
                     "networks",
                     "quick_networks",
                     "layers",
                     "quick_layers",
                     "dtypes",
                     "maps",
                     "orders",
                     "stage_times",
                     "counters_stage",
                     "configurations",
                     "baseline",
                     "published",
                     "plots",
                     "analysis"},
                    error);
  definition.name = reader.Text("name");
  definition.title = reader.Text("title");
  reader.Text("source", "");
  reader.Text("about", "");
  definition.kind = ReadKind(reader);
  RefuseEmpty(reader,
              {"inputs", "quick_inputs", "resolutions", "quick_resolutions", "quick_networks",
               "quick_layers", "dtypes", "maps", "orders", "published", "plots"});
  definition.backends = ReadBackends(reader);
  definition.inputs = ReadInputs(reader, "inputs");
  definition.quick_inputs = ReadInputs(reader, "quick_inputs");
  if (definition.inputs.empty()) definition.inputs = DefaultInputs();
  if (definition.quick_inputs.empty()) definition.quick_inputs = DefaultQuickInputs();
  definition.given_inputs = reader.OneOf("given_inputs", {"replace", "add", "none"}, "replace");
  definition.resolutions = ReadResolutions(reader, "resolutions");
  definition.quick_resolutions = ReadResolutions(reader, "quick_resolutions");
  definition.works = ReadWorks(reader, definition.kind, "networks", "layers");
  definition.quick_works = ReadWorks(reader, definition.kind, "quick_networks", "quick_layers");
  ReadFactors(reader, definition);
  ReadOrders(reader, definition);
  definition.configurations = ReadConfigurations(reader);
  const bool whole = definition.kind == CellKind::kNetwork || definition.kind == CellKind::kInfo;
  if (definition.works.empty()) {
    reader.Refuse(whole ? "networks" : "layers", "is an array that is not empty");
  }
  for (const ConfigurationItem& item : definition.configurations) {
    if (definition.kind == CellKind::kNetwork || !PlanPathOf(item).has_value()) continue;
    RefuseValue(absl::StrCat("configurations[", item.name, "].spec"), item.spec,
                "in experiments of this kind are no plans, which are of networks", error);
  }
  LinkSides(reader, definition);
  CheckPublished(reader, definition);
  CheckPlots(reader, definition);
  const std::string analysis = reader.OneOf(
      "analysis", {"variance", "map_sizes", "redundancy", "best", "transfer", "parts", "identical"},
      "");
  const bool of_layers = analysis == "map_sizes" || analysis == "redundancy";
  if (of_layers && definition.kind != CellKind::kInfo) {
    reader.Refuse("analysis", "in info experiments alone are map_sizes and redundancy");
  }
  if (!error.ok()) return error;
  return definition;
}

std::optional<std::string> PlanPathOf(const ConfigurationItem& item) {
  constexpr absl::string_view kPrefix = "plan:";
  if (!item.spec.is_string()) return std::nullopt;
  const std::string& text = item.spec.get_ref<const std::string&>();
  if (!absl::StartsWith(text, kPrefix)) return std::nullopt;
  return text.substr(kPrefix.size());
}

absl::StatusOr<measure::Configuration> ResolveItem(const ConfigurationItem& item, CellKind kind,
                                                   const Registry& registry) {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("configuration '", item.name, "': ", status.message()));
  };
  if (item.spec.is_object()) {
    Json preset = {{"name", item.name}, {"summary", "-"}, {"source", "-"}};
    preset.update(item.spec);
    absl::StatusOr<measure::Preset> parsed = measure::ParsePreset(preset.dump());
    if (!parsed.ok()) return named(parsed.status());
    absl::StatusOr<measure::Configuration> resolved =
        measure::Resolve(parsed->configuration, registry);
    return resolved.ok() ? resolved : named(resolved.status());
  }
  std::string text = item.spec.get<std::string>();
  if (kind == CellKind::kMap) {
    std::vector<std::string> parts = absl::StrSplit(text, '/');
    // No dataflow runs in map cells, but the reference is held against one that is trusted.
    const absl::StatusOr<measure::Defaults> defaults = measure::LoadDefaults();
    if (!defaults.ok()) return named(defaults.status());
    parts.insert(parts.begin() + 1, defaults->trusted.dataflow);
    text = absl::StrJoin(parts, "/");
  }
  absl::StatusOr<measure::Configuration> resolved = measure::ResolveConfig(text, registry);
  return resolved.ok() ? resolved : named(resolved.status());
}

}  // namespace voxconv::experiment
