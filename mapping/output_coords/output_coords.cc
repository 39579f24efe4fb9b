#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "mapping/output_coords/output_coords_cpu.h"
#include "mapping/output_coords/output_coords_cuda.h"
#include "mapping/output_coords/register.h"

namespace voxconv {
namespace {

using KeysCpu = absl::StatusOr<Array<uint64_t>> (*)(const CandidateRule&, const CoordinateSet&,
                                                    const ExecutionContext&);

// The three plugins differ in how they come from inputs to outputs with repetitions.
class ExpandingOutputCoords final : public OutputCoords {
 public:
  ExpandingOutputCoords(std::string name, KeysCpu keys_cpu, ExpansionCuda expansion_cuda,
                        Options options)
      : name_(std::move(name)),
        keys_cpu_(keys_cpu),
        expansion_cuda_(expansion_cuda),
        options_(std::move(options)) {}

  const Options& options() const override { return options_; }

  Support Supports(const ConvGeometry& geometry, BackendKind backend) const override {
    if (Support support = CpuAndCuda(name_, backend); !support.ok) return support;
    if (geometry.kind() != ConvKind::kStrided && geometry.kind() != ConvKind::kTransposed) {
      return Support::No(absl::StrCat("outputs of ", ToString(geometry.kind()),
                                      " convolutions are given, not computed"));
    }
    return Support::Yes();
  }

  absl::StatusOr<CoordinateSetPtr> Compute(const CoordinateSet& inputs,
                                           const ConvGeometry& geometry,
                                           const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(geometry, context.backend->kind()).ok);
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        VOXCONV_ASSIGN_OR_RETURN(auto sets, ComputeChain(inputs, {&geometry, 1}, context, {}));
        return std::move(sets[0]);
      }
    }
    const StageScope stage(context, Stage::kOutputCoords);
    VOXCONV_ASSIGN_OR_RETURN(const CandidateRule rule, CandidateRule::Create(inputs, geometry));
    VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, keys_cpu_(rule, inputs, context));
    return UniqueRowsCpu(rule, std::move(keys), context);
  }

  absl::StatusOr<std::vector<CoordinateSetPtr>> ComputeChain(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context, const std::function<void()>& meanwhile) const override {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        for (const ConvGeometry& geometry : geometries) {
          VOXCONV_CHECK(Supports(geometry, BackendKind::kCuda).ok);
        }
        const StageScope stage(context, Stage::kOutputCoords);
        return ComputeChainCuda(expansion_cuda_, inputs, geometries, context, meanwhile);
      }
    }
    return OutputCoords::ComputeChain(inputs, geometries, context, meanwhile);
  }

 private:
  std::string name_;
  KeysCpu keys_cpu_;
  ExpansionCuda expansion_cuda_;
  Options options_;
};

absl::Status Register(Registry& registry, const std::string& name, std::string summary,
                      std::string source, KeysCpu keys_cpu, ExpansionCuda expansion_cuda) {
  PluginDescription description;
  description.name = name;
  description.summary = std::move(summary);
  description.source = std::move(source);
  return registry.output_coords().Register(
      std::move(description),
      [name, keys_cpu,
       expansion_cuda](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
        return std::make_unique<ExpandingOutputCoords>(name, keys_cpu, expansion_cuda,
                                                       std::move(options));
      });
}

}  // namespace

absl::Status RegisterOutputCoords(Registry& registry) {
  VOXCONV_RETURN_IF_ERROR(Register(registry, "sort_unique",
                                   "enumerates outputs axis by axis, then sorts and drops repeats",
                                   "MinkowskiEngine, Minuet (sorted coordinates)",
                                   SortUniqueKeysCpu, ExpansionCuda::kSortUnique));
  VOXCONV_RETURN_IF_ERROR(
      Register(registry, "staged", "tests every candidate, each step in a pass over memory",
               "TorchSparse Appendix A, Algorithm 3", StagedKeysCpu, ExpansionCuda::kStaged));
  return Register(registry, "fused", "tests every candidate in one pass, storing outputs only",
                  "TorchSparse 4.2.2 and Appendix A, Algorithm 3", FusedKeysCpu,
                  ExpansionCuda::kFused);
}

}  // namespace voxconv
