// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/split_coordinates.h"
#include "voxconv/mapping/hash/hash_mapping.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/register.h"

namespace voxconv {
namespace {

class HashCuda final : public HashMapping {
 public:
  explicit HashCuda(Options options) : HashMapping(std::move(options), SplitCoordinatesCuda) {}

  Support DoSupports(const ConvGeometry&) const override {
    if (variant() != "std") return Support::Yes();
    return Support::No(absl::StrCat("hash: variant=", variant(), " has no CUDA implementation"));
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildOfRows(
      const CoordinateRows& inputs, const ExecutionContext& context) const override {
    if (variant() == "bricks") return BuildBricksCuda(inputs.set(), load_factor(), context);
    if (variant() == "cuckoo") return BuildCuckooCuda(inputs.set(), load_factor(), context);
    if (variant() == "bucketed") return BuildBucketedCuda(inputs.set(), load_factor(), context);
    if (variant() == "minkowski") return BuildMinkowskiCuda(inputs.set(), load_factor(), context);
    if (variant() == "torchsparse1") return BuildTorchsparse1Cuda(inputs.set(), context);
    if (variant() == "pcengine") return BuildPcengineCuda(inputs.set(), context);
    if (variant() == "open3d") return BuildOpen3dCuda(inputs.set(), context);
    VOXCONV_CHECK(variant() == "open_addressing");
    const bool scalar = options().GetEnum("coords") == "scalar";
    return BuildOpenAddressingCuda(inputs, load_factor(), scalar, context);
  }

  absl::StatusOr<KernelMap> QueryRows(const MapIndex& table, const MapProblem& problem,
                                      const CoordinateRows& outputs, bool symmetric,
                                      const ExecutionContext& context) const override {
    return static_cast<const HashTableCuda&>(table).Query(problem, outputs, symmetric, context);
  }
};

}  // namespace

absl::Status RegisterHashMappingCuda(Registry& registry) {
  return registry.mappings().Implement(
      "hash", BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(HashMapping::CheckOptions(options));
        return std::make_unique<const HashCuda>(std::move(options));
      });
}

}  // namespace voxconv
