// SPDX-License-Identifier: Apache-2.0
// Output coordinates, kernel maps and their layouts: exact or wrong.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// What a set says of itself other than `expected` of the same rows does; null where nothing.
const char* WrongProperty(const CoordinateSet& set, const CoordinateSet& expected) {
  if (!set.sorted()) return "order";
  if (set.tensor_stride() != expected.tensor_stride()) return "tensor stride";
  if (set.num_batches() != expected.num_batches()) return "number of batches";
  return set.bounds() == expected.bounds() ? nullptr : "bounds";
}

absl::Status CheckCoords(const OutputCoords& plugin, const Problem& problem,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr inputs, problem.MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr outputs,
                           plugin.Compute(*inputs, problem.geometry, context));
  VOXCONV_ASSIGN_OR_RETURN(auto rows, CopyToHost(outputs->rows(), context));
  if (rows != problem.outputs) {
    const auto differ =
        std::mismatch(rows.begin(), rows.end(), problem.outputs.begin(), problem.outputs.end());
    return absl::InternalError(
        absl::StrCat(rows.size(), " output rows, the reference has ", problem.outputs.size(),
                     "; row ", differ.first - rows.begin(), " is the first that differs"));
  }
  // What the set says of itself must hold: mappings rely on it.
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr checked,
      CoordinateSet::Create(rows, problem.geometry.output_tensor_stride(), context));
  if (const char* wrong = WrongProperty(*outputs, *checked); wrong != nullptr) {
    return absl::InternalError(
        absl::StrCat("the rows are right, but not what the output set says of its ", wrong));
  }
  return absl::OkStatus();
}

Outcome RunCoordsCase(const Environment& environment, const std::string& spec,
                      const Problem& problem) {
  const auto plugin =
      environment.registry->output_coords().Create(spec, environment.backend->kind());
  if (!plugin.ok()) return Outcome::From(plugin.status());
  const Support support = (*plugin)->Supports(problem.geometry);
  if (!support.ok) return Outcome::Unsupported(support);
  return Outcome::From(CheckCoords(**plugin, problem, ContextOf(*environment.backend)));
}

absl::Status CheckMap(const absl::StatusOr<KernelMap>& queried, const Problem& problem,
                      const ExecutionContext& context) {
  if (!queried.ok()) return queried.status();
  const KernelMap& map = *queried;
  if (map.identity_offset() != problem.geometry.center() ||
      map.symmetric() != problem.geometry.symmetric()) {
    return absl::InternalError("identity offset or symmetry of the map are wrong");
  }
  return CompareMaps(map, problem, context);
}

Outcome RunMapCase(const Environment& environment, const std::string& spec,
                   const Problem& problem) {
  const auto mapping = environment.registry->mappings().Create(spec, environment.backend->kind());
  if (!mapping.ok()) return Outcome::From(mapping.status());
  const Support support = (*mapping)->Supports(problem.geometry);
  if (!support.ok) return Outcome::Unsupported(support);
  const ExecutionContext context = ContextOf(*environment.backend);
  return Outcome::From(CheckMap(QueryValidMap(**mapping, problem, context), problem, context),
                       problem);
}

// The problems have the same inputs. What an index keeps of the geometry that it is asked with
// first shows with the next one.
absl::Status CheckReusedIndex(const Mapping& mapping, absl::Span<const Problem* const> problems,
                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr inputs, problems[0]->MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index, mapping.BuildIndex(*inputs, context));
  for (const Problem* problem : problems) {
    const absl::Status status =
        CheckMap(QueryValidMap(mapping, *index, inputs, *problem, context), *problem, context);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(problem->id, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

Outcome RunReusedIndexCase(const Environment& environment, const std::string& spec,
                           const std::vector<const Problem*>& problems) {
  const auto mapping = environment.registry->mappings().Create(spec, environment.backend->kind());
  if (!mapping.ok()) return Outcome::From(mapping.status());
  std::vector<const Problem*> supported;
  Support support;
  for (const Problem* problem : problems) {
    support = (*mapping)->Supports(problem->geometry);
    if (support.ok) supported.push_back(problem);
  }
  if (supported.empty()) return Outcome::Unsupported(support);
  return Outcome::From(CheckReusedIndex(**mapping, supported, ContextOf(*environment.backend)));
}

// A map in `form`, there and back. Transposing it twice gives the map back, whatever it starts
// from.
absl::Status CheckForm(MapForm form, const Problem& problem, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, UploadReferenceMap(problem, context));
  MapOps& ops = context.backend->map_ops();
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, ops.To(form, pairs, context));
  if (map.form() != form) return absl::InternalError("the map has another form");
  VOXCONV_RETURN_IF_ERROR(map.Validate(context));
  VOXCONV_RETURN_IF_ERROR(CompareMaps(map, problem, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap once, ops.Transpose(map, context));
  VOXCONV_RETURN_IF_ERROR(once.Validate(context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap twice, ops.Transpose(once, context));
  return CompareMaps(twice, problem, context);
}

// The layout that a dataflow makes of a map, by its own check and read back as pairs.
absl::Status CheckLayout(const Dataflow& dataflow, const MapNeed& need, const Problem& problem,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, UploadReferenceMap(problem, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           context.backend->map_ops().To(need.form, pairs, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> prepared,
                           dataflow.Prepare(map, need, context));
  VOXCONV_RETURN_IF_ERROR(prepared->Validate(context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap read, prepared->ToPairs(context));
  VOXCONV_RETURN_IF_ERROR(read.Validate(context));
  return CompareMaps(read, problem, context);
}

Outcome RunLayoutCase(const Environment& environment, const std::string& spec,
                      const Problem& problem) {
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const ConvShape shape = ShapeOfLayer(problem.geometry, 16, 16, Precision::kF32);
  if (const Support support = (*dataflow)->Supports(Pass::kForward, shape); !support.ok) {
    return Outcome::Unsupported(support);
  }
  return Outcome::From(CheckLayout(**dataflow, (*dataflow)->NeededMap(Pass::kForward, shape),
                                   problem, ContextOf(*environment.backend)));
}

// A variant of each dataflow for each layout that it makes.
std::vector<std::string> LayoutMakers(const Environment& environment) {
  std::vector<std::string> specs;
  std::set<std::pair<std::string, std::string>> known;
  const BackendKind kind = environment.backend->kind();
  for (const std::string& spec : environment.registry->dataflows().Variants(kind)) {
    const auto dataflow = environment.registry->dataflows().Create(spec, kind);
    if (!dataflow.ok()) continue;
    // What throws here is told of by the cases of the dataflow.
    const MapNeed need =
        (*dataflow)->NeededMap(Pass::kForward, {.c_in = 16, .c_out = 16, .num_offsets = 27});
    if (need.layout.empty()) continue;
    if (known.emplace(spec.substr(0, spec.find(':')), need.layout).second) specs.push_back(spec);
  }
  return specs;
}

}  // namespace

void AddCoordsCases(Environment& environment, std::vector<Case>& cases) {
  for (const std::string& spec :
       environment.registry->output_coords().Variants(environment.backend->kind())) {
    for (const NamedGeometry& geometry : Geometries()) {
      const ConvKind kind = geometry.params.kind;
      if (kind != ConvKind::kStrided && kind != ConvKind::kTransposed) continue;
      for (const Scene& scene : Scenes()) {
        const Problem* problem = environment.problems.Get(geometry, scene);
        if (problem == nullptr) continue;
        cases.push_back(
            {absl::StrCat("coords/", spec, "/", problem->id),
             [&environment, spec, problem] { return RunCoordsCase(environment, spec, *problem); }});
      }
    }
  }
}

void AddMapCases(Environment& environment, std::vector<Case>& cases) {
  // In both orders: the second geometry's offsets are fewer, or more, or others.
  const Scene& reused = Scenes()[1];
  const Problem* near = environment.problems.Get(GeometryNamed("submanifold_k3"), reused);
  const Problem* strided = environment.problems.Get(GeometryNamed("quantize_k2_s2"), reused);
  VOXCONV_CHECK(near != nullptr && strided != nullptr && near->inputs == strided->inputs);
  for (const std::string& spec :
       environment.registry->mappings().Variants(environment.backend->kind())) {
    for (const auto& problems : {std::vector{near, strided}, std::vector{strided, near}}) {
      cases.push_back({absl::StrCat("map/", spec, "/reused_index/", problems[1]->id),
                       [&environment, spec, problems] {
                         return RunReusedIndexCase(environment, spec, problems);
                       }});
    }
    for (const NamedGeometry& geometry : Geometries()) {
      for (const Scene& scene : Scenes()) {
        const Problem* problem = environment.problems.Get(geometry, scene);
        if (problem == nullptr) continue;
        cases.push_back(
            {absl::StrCat("map/", spec, "/", problem->id),
             [&environment, spec, problem] { return RunMapCase(environment, spec, *problem); }});
      }
    }
  }
}

void AddLayoutCases(Environment& environment, std::vector<Case>& cases) {
  const std::vector<std::string> makers = LayoutMakers(environment);
  for (const NamedGeometry& geometry : Geometries()) {
    for (const Scene& scene : Scenes()) {
      const Problem* problem = environment.problems.Get(geometry, scene);
      if (problem == nullptr) continue;
      for (const MapForm form : {MapForm::kPairs, MapForm::kNeighbourTable, MapForm::kLookup}) {
        cases.push_back({absl::StrCat("form/", ToString(form), "/", problem->id),
                         [&environment, form, problem] {
                           return Outcome::From(
                               CheckForm(form, *problem, ContextOf(*environment.backend)));
                         }});
      }
      for (const std::string& spec : makers) {
        cases.push_back(
            {absl::StrCat("layout/conv/", spec, "/", problem->id),
             [&environment, spec, problem] { return RunLayoutCase(environment, spec, *problem); }});
      }
    }
  }
}

}  // namespace voxconv::verify
