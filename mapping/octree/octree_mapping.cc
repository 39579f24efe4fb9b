#include <algorithm>
#include <memory>
#include <utility>

#include "core/backend_support.h"
#include "core/mapping.h"
#include "mapping/octree/octree_cpu.h"
#include "mapping/octree/octree_cuda.h"
#include "mapping/octree/register.h"

namespace voxconv {
namespace {

class OctreeIndex : public MapIndex {
 public:
  // All lookups of one problem.
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

template <typename Links>
class IndexOf final : public OctreeIndex {
 public:
  explicit IndexOf(Octree<Links> tree) : tree_(std::move(tree)) {}

  static absl::StatusOr<std::unique_ptr<OctreeIndex>> Build(const CoordinateSet& inputs,
                                                            const ExecutionContext& context) {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        VOXCONV_ASSIGN_OR_RETURN(Octree<Links> tree, BuildOctreeCuda<Links>(inputs, context));
        return std::make_unique<IndexOf>(std::move(tree));
      }
    }
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    VOXCONV_ASSIGN_OR_RETURN(Octree<Links> tree, BuildOctreeCpu<Links>(inputs, context));
    return std::make_unique<IndexOf>(std::move(tree));
  }

  int64_t bytes() const override { return tree_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                  const ExecutionContext& context) const override {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return QueryOctreeCuda(tree_, problem, symmetric, context);
      }
    }
    return QueryOctreeCpu(tree_, problem, symmetric, context);
  }

 private:
  Octree<Links> tree_;
};

class OctreeMapping final : public Mapping {
 public:
  explicit OctreeMapping(Options options)
      : options_(std::move(options)),
        keeps_all_(options_.GetEnum("children") == "all"),
        symmetric_(options_.GetBool("symmetric")) {}

  const Options& options() const override { return options_; }
  Support Supports(const ConvGeometry&, BackendKind backend) const override {
    return CpuAndCuda("octree", backend);
  }

  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kIndexBuild);
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<OctreeIndex> index,
                             keeps_all_ ? IndexOf<Link>::Build(inputs, context)
                                        : IndexOf<LinkWord>::Build(inputs, context));
    if (Counters* counters = context.counters()) {
      counters->index_bytes = std::max(counters->index_bytes, index->bytes());
    }
    return index;
  }

  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kMapQuery);
    const bool symmetric = symmetric_ && problem.geometry.symmetric();
    return static_cast<const OctreeIndex&>(index).Query(problem, symmetric, context);
  }

 private:
  Options options_;
  bool keeps_all_;
  bool symmetric_;
};

PluginDescription Describe() {
  PluginDescription description;
  description.name = "octree";
  description.summary = "input coordinates in an octree, one descent an output row and offset";
  description.source = "the octrees that H-CNN compares with (O-CNN)";
  description.options
      .Enum("children", {"occupied", "all"}, "occupied",
            "what a node keeps: a mask and the first of the children that have voxels, or all "
            "eight as O-CNN subdivides")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  return description;
}

}  // namespace

absl::Status RegisterOctreeMapping(Registry& registry) {
  return registry.mappings().Register(
      Describe(), [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        return std::make_unique<const OctreeMapping>(std::move(options));
      });
}

}  // namespace voxconv
