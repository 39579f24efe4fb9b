// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "voxconv/mapping/output_coords/output_coords.h"
#include "voxconv/mapping/output_coords/register.h"

namespace voxconv {
namespace {

using OutputKeys = absl::StatusOr<Array<uint64_t>> (*)(const CandidateRule&, const CoordinateSet&,
                                                       const ExecutionContext&);

class OutputCoordsCpu final : public ExpandingOutputCoords {
 public:
  OutputCoordsCpu(OutputKeys keys, Options options)
      : ExpandingOutputCoords(std::move(options)), keys_(keys) {}

 protected:
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                             const ConvGeometry& geometry,
                                             const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(geometry).ok);
    VOXCONV_ASSIGN_OR_RETURN(const CandidateRule rule, CandidateRule::Create(inputs, geometry));
    VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, keys_(rule, inputs, context));
    return UniqueRowsCpu(rule, std::move(keys), context);
  }

 private:
  OutputKeys keys_;
};

absl::Status Register(Registry& registry, std::string name, std::string summary, std::string source,
                      OutputKeys keys) {
  return registry.output_coords().Register(
      {.name = std::move(name), .summary = std::move(summary), .source = std::move(source)},
      BackendKind::kCpu,
      [keys](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
        return std::make_unique<const OutputCoordsCpu>(keys, std::move(options));
      });
}

}  // namespace

absl::Status RegisterOutputCoords(Registry& registry) {
  VOXCONV_RETURN_IF_ERROR(Register(
      registry, "sort_unique", "enumerates outputs axis by axis, then sorts and drops repeats",
      "MinkowskiEngine, Minuet (sorted coordinates)", SortUniqueKeysCpu));
  VOXCONV_RETURN_IF_ERROR(Register(registry, "staged",
                                   "tests every candidate, each step in a pass over memory",
                                   "TorchSparse Appendix A, Algorithm 3", StagedKeysCpu));
  VOXCONV_RETURN_IF_ERROR(Register(registry, "appended",
                                   "the fused pass with a list of outputs, then sort and unique",
                                   "TorchSparse 4.2.2 and Appendix A, Algorithm 3", FusedKeysCpu));
  return Register(registry, "fused",
                  "tests every candidate in one pass, storing outputs only; bitmaps on CUDA",
                  "TorchSparse 4.2.2 and Appendix A, Algorithm 3", FusedKeysCpu);
}

}  // namespace voxconv
