// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/core/status_macros.h"
#include "voxconv/mapping/perfect_hash/perfect_hash_mapping.h"
#include "voxconv/mapping/perfect_hash/psh_cuda.h"
#include "voxconv/mapping/perfect_hash/register.h"

namespace voxconv {
namespace {

class PerfectHashCuda final : public PerfectHashMapping {
 public:
  explicit PerfectHashCuda(Options options) : PerfectHashMapping(std::move(options)) {}

  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(PshCuda psh, builds_on_device()
                                              ? BuildPshOnDevice(inputs, psh_options(), context)
                                              : BuildPshOnHost(inputs, psh_options(), context));
    return MakePshIndexCuda(std::move(psh));
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const auto& psh = static_cast<const PshIndexCuda&>(index);
    return on_demand() ? psh.Lookup(problem, context)
                       : psh.Query(problem, Mirrors(problem), context);
  }
};

}  // namespace

absl::Status RegisterPerfectHashMappingCuda(Registry& registry) {
  return registry.mappings().Implement(
      "perfect_hash", BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(PerfectHashMapping::Check(options));
        return std::make_unique<const PerfectHashCuda>(std::move(options));
      });
}

}  // namespace voxconv
