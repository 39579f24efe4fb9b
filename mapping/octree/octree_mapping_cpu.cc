// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/mapping/octree/octree_cpu.h"
#include "voxconv/mapping/octree/octree_mapping.h"
#include "voxconv/mapping/octree/register.h"

namespace voxconv {
namespace {

class OctreeCpu final : public OctreeMapping {
 public:
  explicit OctreeCpu(Options options) : OctreeMapping(std::move(options)) {}

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return keeps_all() ? MakeIndex(BuildOctreeCpu<Link>(inputs, context))
                       : MakeIndex(BuildOctreeCpu<LinkWord>(inputs, context));
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const bool symmetric = Mirrors(problem);
    return keeps_all() ? QueryOctreeCpu(TreeOf<Link>(index), problem, symmetric, context)
                       : QueryOctreeCpu(TreeOf<LinkWord>(index), problem, symmetric, context);
  }
};

}  // namespace

absl::Status RegisterOctreeMapping(Registry& registry) {
  return registry.mappings().Register(
      OctreeMapping::Describe(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        return std::make_unique<const OctreeCpu>(std::move(options));
      });
}

}  // namespace voxconv
