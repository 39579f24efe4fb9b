// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "voxconv/mapping/output_coords/output_coords.h"
#include "voxconv/mapping/output_coords/register.h"

namespace voxconv {
namespace {

// The keys of all outputs, by one of the algorithms.
using OutputKeys = std::function<absl::StatusOr<Array<uint64_t>>(
    const CandidateRule&, const CoordinateSet&, const ExecutionContext&)>;

class OutputCoordsCpu final : public ExpandingOutputCoords {
 public:
  OutputCoordsCpu(OutputKeys keys, Options options)
      : ExpandingOutputCoords(std::move(options)), keys_(std::move(keys)) {}

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
                      const OutputKeys& keys) {
  return registry.output_coords().Register(
      {.name = std::move(name), .summary = std::move(summary), .source = std::move(source)},
      BackendKind::kCpu,
      [keys](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
        return std::make_unique<const OutputCoordsCpu>(keys, std::move(options));
      });
}

absl::Status RegisterLocationTable(Registry& registry) {
  return registry.output_coords().Register(
      {.name = "location_table",
       .summary = "takes cells of a table and places of a list by atomics, then sorts",
       .source = "Luo & Lai III-D",
       .options = LocationTableOptions(),
       .extra_variants = {"memory_limit_mib=1"}},  // reaches the hash table
      BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
        const int64_t max_bytes = MaxTableBytes(options);
        const auto keys = [max_bytes](const CandidateRule& rule, const CoordinateSet& inputs,
                                      const ExecutionContext& context) {
          return LocationTableKeysCpu(rule, inputs, max_bytes, context);
        };
        return std::make_unique<const OutputCoordsCpu>(keys, std::move(options));
      });
}

}  // namespace

absl::Status RegisterOutputCoords(Registry& registry) {
  VOXCONV_RETURN_IF_ERROR(Register(
      registry, "sort_unique", "enumerates outputs axis by axis, then sorts and drops repeats",
      "Minuet (sorted coordinates), PCEngine (as released)", SortUniqueKeysCpu));
  VOXCONV_RETURN_IF_ERROR(Register(registry, "staged",
                                   "tests every candidate, each step in a pass over memory",
                                   "TorchSparse Appendix A, Algorithm 3", StagedKeysCpu));
  VOXCONV_RETURN_IF_ERROR(Register(registry, "appended",
                                   "the fused pass with a list of outputs, then sort and unique",
                                   "TorchSparse 4.4 and Appendix A, Algorithm 3", FusedKeysCpu));
  VOXCONV_RETURN_IF_ERROR(Register(
      registry, "fused", "tests every candidate in one pass, storing outputs only; bitmaps on CUDA",
      "TorchSparse 4.4 and Appendix A, Algorithm 3", FusedKeysCpu));
  return RegisterLocationTable(registry);
}

}  // namespace voxconv
