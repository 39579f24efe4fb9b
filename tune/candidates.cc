// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/candidates.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/measure/json_reader.h"

namespace voxconv::tune {
namespace {

using measure::Json;
using measure::JsonReader;
using OptionValues = std::vector<std::pair<std::string, std::string>>;

void AddOnce(std::vector<std::string>& specs, std::string spec) {
  if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(std::move(spec));
}

template <typename Plugin>
std::vector<std::string> Defaults(const PluginFamily<Plugin>& family, BackendKind backend) {
  std::vector<std::string> specs;
  for (const auto& [name, entry] : family.entries()) {
    if (entry.factories.contains(backend)) specs.push_back(name);
  }
  return specs;
}

// Enum options and extra variants; bool options stay at their defaults.
std::vector<std::string> WorkingVariants(const PluginFamily<Dataflow>& family,
                                         BackendKind backend) {
  std::vector<std::string> specs = family.EnumVariants(backend);
  for (const auto& [name, entry] : family.entries()) {
    for (const std::string& extra : entry.description.extra_variants) {
      const auto spec = family.Canonical(absl::StrCat(name, ":", extra));
      if (spec.ok() && family.Create(*spec, backend).ok()) AddOnce(specs, *spec);
    }
  }
  return specs;
}

std::vector<DataflowGrid> DescribedGrids(const PluginFamily<Dataflow>& family,
                                         BackendKind backend) {
  std::vector<DataflowGrid> grids;
  for (const auto& [name, entry] : family.entries()) {
    if (!entry.factories.contains(backend)) continue;
    for (const OptionGrid& grid : entry.description.grids) grids.push_back({name, grid});
  }
  return grids;
}

// "a=1,b=2" to pairs; the text is canonical, so it has no empty or repeated entries.
OptionValues SplitOptions(absl::string_view text) {
  OptionValues values;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> value =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    values.push_back(value);
  }
  return values;
}

void Set(OptionValues& values, const std::string& option, const std::string& value) {
  const auto known = std::find_if(values.begin(), values.end(),
                                  [&](const auto& entry) { return entry.first == option; });
  if (known == values.end()) {
    values.emplace_back(option, value);
  } else {
    known->second = value;
  }
}

std::vector<std::string> Divisors(int64_t n) {
  std::vector<std::string> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(absl::StrCat(d));
  }
  return divisors;
}

std::vector<std::string> ValuesOf(const OptionAxis& axis, int64_t c_in, int64_t c_out) {
  std::vector<std::string> values;
  for (const std::string& value : axis.values) {
    std::vector<std::string> some = {value};
    if (value == "divisors(c_in)") some = Divisors(c_in);
    if (value == "divisors(c_out)") some = Divisors(c_out);
    for (std::string& one : some) AddOnce(values, std::move(one));
  }
  return values;
}

// The array under `key`: texts, and numbers and flags as they are written.
std::vector<std::string> ReadValues(JsonReader& reader, const char* key) {
  std::vector<std::string> values;
  reader.Each(key, [&](const Json& element, const std::string& path) {
    if (element.is_string()) return values.push_back(element.get<std::string>());
    if (element.is_number() || element.is_boolean()) return values.push_back(element.dump());
    measure::RefuseValue(path, element, "are texts, numbers, true and false", reader.error());
  });
  if (values.empty()) reader.Refuse(key, "is an array that is not empty");
  return values;
}

template <typename Plugin>
absl::Status ReadSpecs(JsonReader& reader, const char* key, const PluginFamily<Plugin>& family,
                       BackendKind backend, std::vector<std::string>& specs) {
  if (!reader.Has(key)) return absl::OkStatus();
  const std::vector<std::string> texts = ReadValues(reader, key);
  if (!reader.error().ok()) return reader.error();
  specs.clear();
  for (const std::string& text : texts) {
    VOXCONV_RETURN_IF_ERROR(family.Create(text, backend).status());
    VOXCONV_ASSIGN_OR_RETURN(std::string canonical, family.Canonical(text));
    AddOnce(specs, std::move(canonical));
  }
  return absl::OkStatus();
}

// A value that no candidate could have would leave nothing to search, without a word.
absl::Status CheckValues(const OptionAxis& axis, const PluginFamily<Dataflow>& family,
                         const PluginDescription& dataflow) {
  const bool is_int = dataflow.options.Find(axis.option)->type == OptionSpec::Type::kInt;
  for (const std::string& value : axis.values) {
    if (is_int && (value == "divisors(c_in)" || value == "divisors(c_out)")) continue;
    const auto spec = family.Canonical(absl::StrCat(dataflow.name, ":", axis.option, "=", value));
    if (spec.ok() && !absl::StrContains(value, ',')) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("grid: option '", axis.option, "' of ", dataflow.name, " is '", value,
                     "'; allowed are ", dataflow.options.Find(axis.option)->Allowed(),
                     is_int ? ", divisors(c_in) and divisors(c_out)" : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OptionAxis>> ReadAxes(JsonReader& grid, const char* key,
                                                 const PluginFamily<Dataflow>& family,
                                                 const PluginDescription& dataflow) {
  const Json& object = grid.Object(key);
  JsonReader reader(object, grid.PathOf(key), grid.error());
  std::vector<OptionAxis> axes;
  for (const auto& [option, values] : object.items()) {
    if (dataflow.options.Find(option) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("grid: ", dataflow.name, " has no option '", option, "'"));
    }
    axes.push_back({option, ReadValues(reader, option.c_str())});
    VOXCONV_RETURN_IF_ERROR(CheckValues(axes.back(), family, dataflow));
  }
  if (!grid.error().ok()) return grid.error();
  return axes;
}

absl::StatusOr<DataflowGrid> ReadGrid(const Json& object, const std::string& path,
                                      const PluginFamily<Dataflow>& family, BackendKind backend) {
  absl::Status error;
  JsonReader reader(object, path, {"dataflow", "where", "axes"}, error);
  DataflowGrid grid{reader.Text("dataflow"), {}};
  if (!error.ok()) return error;
  VOXCONV_RETURN_IF_ERROR(family.Create(grid.dataflow, backend).status());
  const auto entry = family.entries().find(grid.dataflow);
  if (entry == family.entries().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid: dataflow '", grid.dataflow, "': a name without options is needed"));
  }
  const PluginDescription& description = entry->second.description;
  VOXCONV_ASSIGN_OR_RETURN(grid.grid.axes, ReadAxes(reader, "axes", family, description));
  if (reader.Has("where")) {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<OptionAxis> where,
                             ReadAxes(reader, "where", family, description));
    if (where.size() != 1) {
      reader.Refuse("where", "is an object with one option");
      return error;
    }
    grid.grid.where = std::move(where[0]);
  }
  return grid;
}

}  // namespace

Candidates DefaultCandidates(const Registry& registry, BackendKind backend, bool quick) {
  if (quick) {
    return {Defaults(registry.mappings(), backend),
            Defaults(registry.dataflows(), backend),
            Defaults(registry.output_coords(), backend),
            {}};
  }
  return {registry.mappings().Variants(backend), WorkingVariants(registry.dataflows(), backend),
          registry.output_coords().Variants(backend),
          DescribedGrids(registry.dataflows(), backend)};
}

absl::StatusOr<Candidates> ParseCandidates(absl::string_view json, const Registry& registry,
                                           BackendKind backend, const Candidates& defaults) {
  VOXCONV_ASSIGN_OR_RETURN(const Json object, measure::ParseJson(json));
  absl::Status error;
  JsonReader reader(object, "", {"mappings", "dataflows", "output_coords", "grids"}, error);
  if (!error.ok()) return error;
  Candidates candidates = defaults;
  VOXCONV_RETURN_IF_ERROR(
      ReadSpecs(reader, "mappings", registry.mappings(), backend, candidates.mappings));
  VOXCONV_RETURN_IF_ERROR(
      ReadSpecs(reader, "dataflows", registry.dataflows(), backend, candidates.dataflows));
  VOXCONV_RETURN_IF_ERROR(ReadSpecs(reader, "output_coords", registry.output_coords(), backend,
                                    candidates.output_coords));
  if (reader.Has("dataflows") || reader.Has("grids")) candidates.grids.clear();
  reader.Each("grids", [&](const Json& element, const std::string& path) {
    absl::StatusOr<DataflowGrid> grid = ReadGrid(element, path, registry.dataflows(), backend);
    error.Update(grid.status());
    if (grid.ok()) candidates.grids.push_back(*std::move(grid));
  });
  if (!error.ok()) return error;
  return candidates;
}

template <typename Plugin>
absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Plugin>& family,
                                                BackendKind backend,
                                                const std::vector<std::string>& candidates,
                                                const std::vector<std::string>& wanted) {
  std::vector<std::string> narrowed;
  for (const std::string& spec : wanted) {
    VOXCONV_RETURN_IF_ERROR(family.Create(spec, backend).status());
    VOXCONV_ASSIGN_OR_RETURN(std::string canonical, family.Canonical(spec));
    const size_t before = narrowed.size();
    if (!absl::StrContains(spec, ':')) {
      for (const std::string& candidate : candidates) {
        if (candidate == spec || absl::StartsWith(candidate, absl::StrCat(spec, ":"))) {
          AddOnce(narrowed, candidate);
        }
      }
    }
    if (narrowed.size() == before) AddOnce(narrowed, std::move(canonical));
  }
  return narrowed;
}

template absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Mapping>&, BackendKind,
                                                         const std::vector<std::string>&,
                                                         const std::vector<std::string>&);
template absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Dataflow>&, BackendKind,
                                                         const std::vector<std::string>&,
                                                         const std::vector<std::string>&);
template absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<OutputCoords>&,
                                                         BackendKind,
                                                         const std::vector<std::string>&,
                                                         const std::vector<std::string>&);

std::vector<std::string> Expand(const DataflowGrid& grid, const std::string& base, int64_t c_in,
                                int64_t c_out, const PluginFamily<Dataflow>& family,
                                BackendKind backend) {
  const auto plugin = family.Create(base, backend);
  const absl::StatusOr<PluginSpec> parsed = ParsePluginSpec(base);
  if (!plugin.ok() || !parsed.ok() || parsed->name != grid.dataflow) return {};
  const OptionValues options = SplitOptions((*plugin)->options().ToString());
  const OptionAxis& where = grid.grid.where;
  if (!where.option.empty()) {
    const bool applies = std::any_of(options.begin(), options.end(), [&](const auto& entry) {
      return entry.first == where.option && std::find(where.values.begin(), where.values.end(),
                                                      entry.second) != where.values.end();
    });
    if (!applies) return {};
  }
  std::vector<OptionValues> product = {options};
  for (const OptionAxis& axis : grid.grid.axes) {
    std::vector<OptionValues> longer;
    for (const OptionValues& before : product) {
      for (const std::string& value : ValuesOf(axis, c_in, c_out)) {
        Set(longer.emplace_back(before), axis.option, value);
      }
    }
    product = std::move(longer);
  }
  std::vector<std::string> specs;
  for (const OptionValues& values : product) {
    const std::string text =
        absl::StrCat(grid.dataflow, ":", absl::StrJoin(values, ",", absl::PairFormatter("=")));
    const auto canonical = family.Canonical(text);
    // What the plugin refuses, such as a tile past its range, is no candidate.
    if (canonical.ok() && family.Create(*canonical, backend).ok()) AddOnce(specs, *canonical);
  }
  return specs;
}

}  // namespace voxconv::tune
