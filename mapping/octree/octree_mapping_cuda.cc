// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/mapping/octree/octree_cuda.h"
#include "voxconv/mapping/octree/octree_mapping.h"
#include "voxconv/mapping/octree/register.h"

namespace voxconv {
namespace {

class OctreeCuda final : public OctreeMapping {
 public:
  explicit OctreeCuda(Options options) : OctreeMapping(std::move(options)) {}

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return keeps_all() ? MakeIndex(BuildOctreeCuda<Link>(inputs, context))
                       : MakeIndex(BuildOctreeCuda<LinkWord>(inputs, context));
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const bool symmetric = Mirrors(problem);
    return keeps_all() ? QueryOctreeCuda(TreeOf<Link>(index), problem, symmetric, context)
                       : QueryOctreeCuda(TreeOf<LinkWord>(index), problem, symmetric, context);
  }
};

}  // namespace

absl::Status RegisterOctreeMappingCuda(Registry& registry) {
  return registry.mappings().Implement(
      "octree", BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        return std::make_unique<const OctreeCuda>(std::move(options));
      });
}

}  // namespace voxconv
