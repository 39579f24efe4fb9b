// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/split_coordinates.h"
#include "voxconv/mapping/hash/hash_mapping.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"
#include "voxconv/mapping/hash/register.h"

namespace voxconv {
namespace {

class HashCpu final : public HashMapping {
 public:
  explicit HashCpu(Options options) : HashMapping(std::move(options), SplitCoordinatesCpu) {}

  Support DoSupports(const ConvGeometry&) const override {
    if (variant() != "bucketed" && variant() != "bricks") return Support::Yes();
    return Support::No(absl::StrCat("hash: variant=", variant(), " has no CPU implementation"));
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildOfRows(
      const CoordinateRows& inputs, const ExecutionContext& context) const override {
    if (variant() == "cuckoo") return BuildCuckooCpu(inputs.set(), load_factor(), context);
    if (variant() == "minkowski") return BuildMinkowskiCpu(inputs.set(), load_factor(), context);
    if (variant() == "torchsparse1") return BuildTorchsparse1Cpu(inputs.set(), context);
    if (variant() == "pcengine") return BuildPcengineCpu(inputs.set(), context);
    if (variant() == "open3d") return BuildOpen3dCpu(inputs.set(), context);
    if (variant() == "std") return BuildStdCpu(inputs.set(), context);
    VOXCONV_CHECK(variant() == "open_addressing");
    return BuildOpenAddressingCpu(inputs, load_factor(), context);
  }

  absl::StatusOr<KernelMap> QueryRows(const MapIndex& table, const MapProblem& problem,
                                      const CoordinateRows& outputs, bool symmetric,
                                      const ExecutionContext& context) const override {
    return QueryHashTableCpu(static_cast<const HashTableCpu&>(table), problem, outputs, symmetric,
                             context);
  }
};

}  // namespace

absl::Status RegisterHashMapping(Registry& registry) {
  return registry.mappings().Register(
      HashMapping::Describe(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(HashMapping::CheckOptions(options));
        if (options.GetEnum("coords") == "scalar") {
          return absl::UnimplementedError("coords=scalar: only CUDA loads rows in one piece");
        }
        if (options.GetEnum("variant") == "open3d" && !HaveOpen3d()) {
          return absl::UnimplementedError("variant=open3d: this build has no Open3D");
        }
        return std::make_unique<const HashCpu>(std::move(options));
      });
}

}  // namespace voxconv
