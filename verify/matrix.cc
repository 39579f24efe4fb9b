// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/matrix.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/random.h"

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

// The quick subset is the same on every machine.
uint64_t StableHash(absl::string_view text) {
  const uint64_t hash = HashFnv1a(text);
  return hash ^ hash >> 29;
}

constexpr uint64_t kQuickOneIn = 20;

// "<suite>/map/<mapping>/..." and "<suite>/conv/<dataflow>/...".
bool IsOfOnePlugin(absl::string_view suite) {
  for (const absl::string_view s : {"repeat", "exact", "cover", "value", "guard", "counters",
                                    "grad", "grad_large", "layout", "pool"}) {
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
void AddFactoryCases(const PluginFamily<Plugin>& family, BackendKind backend,
                     absl::string_view prefix, std::vector<Case>& cases) {
  for (const auto& [name, status] : family.Unusable(backend)) {
    cases.push_back({absl::StrCat(prefix, "/", name, "/factory"),
                     [status = status] {
                       return absl::IsUnimplemented(status)
                                  ? Outcome::Skipped(std::string(status.message()))
                                  : Outcome::From(status);
                     },
                     /*always=*/true});
  }
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
  AddGradCases(environment, all);
  AddLargeGradCases(environment, all);
  AddGradOperatorCases(environment, all);
  AddStepCases(environment, all);
  AddValueCases(environment, all);
  AddGuardCases(environment, all);
  AddStressCases(environment, all);
  AddCoveringCases(environment, all);
  AddLargeCases(environment, all);
  const BackendKind backend = environment.backend->kind();
  AddFactoryCases(environment.registry->output_coords(), backend, "coords", all);
  AddFactoryCases(environment.registry->mappings(), backend, "map", all);
  AddFactoryCases(environment.registry->dataflows(), backend, "conv/reference", all);
  return SelectCases(std::move(all), selection);
}

std::vector<Case> SelectCases(std::vector<Case> cases, const Selection& selection) {
  const auto exact = std::find_if(cases.begin(), cases.end(),
                                  [&](const Case& c) { return c.id == selection.filter; });
  if (exact != cases.end()) return {*exact};
  std::erase_if(cases, [&](const Case& c) { return !IsSelected(c, selection); });
  return cases;
}

std::vector<std::string> SupportTable(const Registry& registry, BackendKind backend,
                                      const Selection& selection) {
  const bool all = selection.mapping.empty() && selection.dataflow.empty();
  const auto variants = [&](const auto& family, const std::string& selected) {
    std::vector<std::string> specs = family.Variants(backend);
    std::erase_if(specs, [&](const std::string& spec) {
      return !all && (selected.empty() || !MatchesPlugin(spec, selected));
    });
    return specs;
  };
  std::set<std::string> lines;
  const auto add_geometries = [&](const auto& family) {
    for (const std::string& spec : variants(family, selection.mapping)) {
      const auto plugin = family.Create(spec, backend);
      if (!plugin.ok()) continue;
      for (const NamedGeometry& named : Geometries()) {
        const ConvGeometry geometry = *ConvGeometry::Create(PlacedGeometry(named.params));
        const Support support = (*plugin)->Supports(geometry);
        if (!support.ok) {
          lines.insert(
              absl::StrCat(family.family(), " ", spec, " | ", named.name, " | ", support.reason));
        }
      }
    }
  };
  add_geometries(registry.mappings());
  for (const std::string& spec : variants(registry.dataflows(), selection.dataflow)) {
    const auto dataflow = registry.dataflows().Create(spec, backend);
    if (!dataflow.ok()) continue;
    for (Precision precision :
         {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
      const Support support = (*dataflow)->Supports(
          Pass::kForward,
          {16, 16, /*num_offsets=*/27, /*symmetric=*/true, ConvTypes::Of(precision)});
      if (!support.ok) {
        lines.insert(
            absl::StrCat("dataflow ", spec, " | ", ToString(precision), " | ", support.reason));
      }
    }
  }
  return {lines.begin(), lines.end()};
}

std::vector<float> Values(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  Random random(seed);
  for (float& value : values) value = static_cast<float>(random.Uniform(-1, 1));
  return values;
}

absl::StatusOr<KernelMap> UploadReferenceMap(const Problem& problem,
                                             const ExecutionContext& context) {
  PairBuffers pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(problem.map.in, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(problem.map.out, context));
  KernelMap map(problem.inputs.size(), problem.outputs.size(), problem.map.offset_ptr,
                PairList(std::move(pairs)));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const Problem& problem,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr inputs, problem.MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index, mapping.BuildIndex(*inputs, context));
  return QueryValidMap(mapping, *index, inputs, problem, context);
}

absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const MapIndex& index,
                                        const CoordinateSetPtr& inputs, const Problem& problem,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr outputs, problem.MakeOutputs(inputs, context));
  const MapProblem map_problem{*inputs, *outputs, problem.geometry};
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, mapping.Query(index, map_problem, context));
  VOXCONV_RETURN_IF_ERROR(map.Validate(context));
  return context.backend->map_ops().To(MapForm::kPairs, map, context);
}

}  // namespace voxconv::verify
