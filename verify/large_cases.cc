// SPDX-License-Identifier: Apache-2.0
// Problems that are larger than every tile, thread and block: 2^16 + 1 voxels.
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

constexpr int kNumVoxels = (1 << 16) + 1;
constexpr CaseShape kShape = {.c_in = 8, .c_out = 16};
// 125 offsets with 1.6 million pairs, and fewer outputs than inputs.
constexpr const char* kGeometries[] = {"submanifold_k5", "quantize_k3_s2"};

// One voxel on every column of a plane, at a height of 0, 1 or 2: each offset of a kernel of 5 has
// pairs. The last row is alone in its tile for every tile of 2^n rows.
Scene LargeScene() {
  Scene scene{.name = "large"};
  uint32_t state = 1;
  for (int32_t i = 0; i < kNumVoxels; ++i) {
    state = state * 1664525 + 1013904223;
    scene.rows.push_back({0, i / 256, i % 256, static_cast<int32_t>((state >> 16) % 3)});
  }
  return scene;
}

// The problems and their exact sums, made if one of these cases runs.
class LargeProblems {
 public:
  const Problem& Get(const std::string& geometry) {
    return *problems_.Get(GeometryNamed(geometry), scene_);
  }
  const ConvData& Data(const std::string& geometry) {
    const auto [it, inserted] = data_.try_emplace(geometry);
    if (inserted) it->second = WholeNumbers(Get(geometry), kShape.c_in, kShape.c_out);
    return it->second;
  }

 private:
  Scene scene_ = LargeScene();
  ProblemCache problems_;
  std::map<std::string, ConvData> data_;
};

Outcome RunLargeMapCase(const Environment& environment, const std::string& spec,
                        const Problem& problem) {
  return WithMapping(environment, spec, problem.geometry, [&](const Mapping& mapping) {
    const ExecutionContext context = ContextOf(*environment.backend);
    const absl::StatusOr<KernelMap> map = QueryValidMap(mapping, problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    return Outcome::From(CompareMaps(*map, problem, context));
  });
}

Outcome RunConvCase(const Environment& environment, const std::string& spec, Precision precision,
                    const Problem& problem, const ConvData& data) {
  const CaseShape shape{data.c_in, data.c_out, precision};
  return WithDataflow(environment, spec, shape, problem.geometry, [&](const Dataflow& dataflow) {
    const ExecutionContext context = ContextOf(*environment.backend);
    const absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    const auto output = Convolve(dataflow, *map, data, precision, context);
    if (!output.ok()) return Outcome::From(output.status());
    const LayerData layer = LayerDataOf(problem, data);
    return Outcome::From(CompareExactly(*output, data.output, data.c_out, &layer));
  });
}

}  // namespace

void AddLargeCases(Environment& environment, std::vector<Case>& cases) {
  const auto large = std::make_shared<LargeProblems>();
  for (const std::string geometry : kGeometries) {
    for (const std::string& spec :
         environment.registry->mappings().Variants(environment.backend->kind())) {
      cases.push_back({absl::StrCat("exact/map/", spec, "/", geometry, "/large"),
                       [&environment, large, spec, geometry] {
                         return RunLargeMapCase(environment, spec, large->Get(geometry));
                       }});
    }
    for (const std::string& spec :
         environment.registry->dataflows().Variants(environment.backend->kind())) {
      ForEachClaimedPrecision(
          environment, spec, kShape.c_in, kShape.c_out, [&](Precision precision) {
            const std::string shape = ShapeName({kShape.c_in, kShape.c_out, precision});
            cases.push_back({absl::StrCat("exact/conv/", spec, "/", shape, "/", geometry, "/large"),
                             [&environment, large, spec, geometry, precision] {
                               return RunConvCase(environment, spec, precision,
                                                  large->Get(geometry), large->Data(geometry));
                             }});
          });
    }
  }
}

}  // namespace voxconv::verify
