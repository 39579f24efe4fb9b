#include "verify/matrix.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace voxconv::verify {
namespace {

bool MatchesFilter(const std::string& id, const std::string& filter) {
  if (filter.empty()) return true;
  if (absl::StrContains(filter, '*')) {
    return fnmatch(absl::StrCat("*", filter, "*").c_str(), id.c_str(), 0) == 0;
  }
  return absl::StrContains(id, filter);
}

bool MatchesPlugin(absl::string_view spec, absl::string_view wanted) {
  if (wanted.empty() || spec == wanted) return true;
  if (absl::StrContains(wanted, ':')) return absl::StrCat(spec, ":") == wanted;
  return absl::StartsWith(spec, absl::StrCat(wanted, ":"));
}

// FNV-1a, so that the quick subset is the same on every machine.
uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash ^ hash >> 29;
}

constexpr uint64_t kQuickOneIn = 20;

// "<suite>/map/<mapping>/..." and "<suite>/conv/<dataflow>/...".
bool IsOfOnePlugin(absl::string_view suite) {
  for (const absl::string_view s : {"repeat", "exact", "cover", "value", "guard", "counters"}) {
    if (suite == s) return true;
  }
  return false;
}

bool IsSelected(const Case& test, const Selection& selection) {
  const std::string& id = test.id;
  if (!MatchesFilter(id, selection.filter)) return false;
  if (selection.quick && !test.always && StableHash(id) % kQuickOneIn != 0) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '/');
  const bool has_both = parts[0] == "conv" || parts[0] == "network";
  const bool of_one = IsOfOnePlugin(parts[0]);
  const bool is_mapping = has_both || parts[0] == "map" || (of_one && parts[1] == "map");
  const bool is_dataflow = has_both || (of_one && parts[1] == "conv");
  const size_t first = of_one ? 2 : 1;
  if (!selection.mapping.empty() &&
      (!is_mapping || !MatchesPlugin(parts[first], selection.mapping))) {
    return false;
  }
  if (!selection.dataflow.empty() &&
      (!is_dataflow || !MatchesPlugin(parts[has_both ? first + 1 : first], selection.dataflow))) {
    return false;
  }
  return true;
}

// One case for each plugin that has no others since nothing can be made of it.
template <typename Plugin>
void AddFactoryCases(const PluginFamily<Plugin>& family, absl::string_view prefix,
                     std::vector<Case>& cases) {
  for (const auto& [name, status] : family.Unusable()) {
    cases.push_back({absl::StrCat(prefix, "/", name, "/factory"),
                     [status = status] {
                       return absl::IsUnimplemented(status)
                                  ? Outcome::Skipped(std::string(status.message()))
                                  : Outcome::From(status);
                     },
                     /*always=*/true});
  }
}

// What a plugin that throws is said to support.
Support SupportOrException(const std::function<Support()>& ask) {
  const absl::StatusOr<Support> support =
      WithoutExceptions([&]() -> absl::StatusOr<Support> { return ask(); });
  return support.ok() ? *support : Support::No(std::string(support.status().message()));
}

}  // namespace

Outcome RunCase(const Case& test) {
  Outcome outcome;
  const absl::Status status = WithoutExceptions([&]() -> absl::Status {
    outcome = test.run();
    return absl::OkStatus();
  });
  if (!status.ok()) outcome = Outcome::From(status);
  absl::StrReplaceAll({{"\n", " "}}, &outcome.detail);
  return outcome;
}

std::vector<Case> MakeCases(Environment& environment, const Selection& selection) {
  std::vector<Case> all;
  AddCoordsCases(environment, all);
  AddMapCases(environment, all);
  AddLayoutCases(environment, all);
  AddConvCases(environment, all);
  AddRepeatCases(environment, all);
  AddPoolCases(environment, all);
  AddValueCases(environment, all);
  AddGuardCases(environment, all);
  AddStressCases(environment, all);
  AddCoveringCases(environment, all);
  AddLargeCases(environment, all);
  AddFactoryCases(environment.registry->output_coords(), "coords", all);
  AddFactoryCases(environment.registry->mappings(), "map", all);
  AddFactoryCases(environment.registry->dataflows(), "conv/reference", all);
  return SelectCases(std::move(all), selection);
}

std::vector<Case> SelectCases(std::vector<Case> cases, const Selection& selection) {
  const auto exact = std::find_if(cases.begin(), cases.end(),
                                  [&](const Case& c) { return c.id == selection.filter; });
  if (exact != cases.end()) return {*exact};
  std::erase_if(cases, [&](const Case& c) { return !IsSelected(c, selection); });
  return cases;
}

std::vector<std::string> SupportTable(const Registry& registry, BackendKind backend) {
  std::set<std::string> lines;
  const auto add_geometries = [&](const auto& family) {
    for (const std::string& spec : family.Variants()) {
      const auto plugin = family.Create(spec);
      if (!plugin.ok()) continue;
      for (const NamedGeometry& named : Geometries()) {
        const ConvGeometry geometry = *ConvGeometry::Create(PlacedGeometry(named.params));
        const Support support =
            SupportOrException([&] { return (*plugin)->Supports(geometry, backend); });
        if (!support.ok) {
          lines.insert(
              absl::StrCat(family.family(), " ", spec, " | ", named.name, " | ", support.reason));
        }
      }
    }
  };
  add_geometries(registry.mappings());
  for (const std::string& spec : registry.dataflows().Variants()) {
    const auto dataflow = registry.dataflows().Create(spec);
    if (!dataflow.ok()) continue;
    for (DType dtype : {DType::kF32, DType::kTf32, DType::kF16, DType::kBF16}) {
      const Support support = SupportOrException([&] {
        return (*dataflow)->Supports({16, 16, dtype}, backend);
      });
      if (!support.ok) {
        lines.insert(
            absl::StrCat("dataflow ", spec, " | ", ToString(dtype), " | ", support.reason));
      }
    }
  }
  return {lines.begin(), lines.end()};
}

std::vector<float> Values(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (float& value : values) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  }
  return values;
}

absl::StatusOr<KernelMap> UploadReferenceMap(const Problem& problem,
                                             const ExecutionContext& context) {
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(problem.map.in, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(problem.map.out, context));
  KernelMap map(problem.inputs.size(), problem.outputs.size(), problem.map.offset_ptr, {},
                std::move(pairs));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const Problem& problem,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr inputs, problem.MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           NonNull(mapping.BuildIndex(*inputs, context), "mapping: BuildIndex"));
  return QueryValidMap(mapping, *index, inputs, problem, context);
}

absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const MapIndex& index,
                                        const CoordinateSetPtr& inputs, const Problem& problem,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr outputs, problem.MakeOutputs(inputs, context));
  const MapProblem map_problem{*inputs, *outputs, problem.geometry};
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, mapping.Query(index, map_problem, context));
  VOXCONV_RETURN_IF_ERROR(CheckQueriedMap(map, map_problem));
  VOXCONV_RETURN_IF_ERROR(map.Validate(context));
  if (map.layout() == LayoutRequest{}) return map;
  return context.backend->ConvertKernelMap(map, {}, context);
}

}  // namespace voxconv::verify
