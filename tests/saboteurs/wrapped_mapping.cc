#include "tests/saboteurs/wrapped_mapping.h"

#include <memory>
#include <utility>

namespace voxconv::testing {
namespace {

class WrappedMapping final : public Mapping {
 public:
  WrappedMapping(Options options, std::unique_ptr<const Mapping> right, MappingFault fault)
      : options_(std::move(options)), right_(std::move(right)), fault_(std::move(fault)) {}

  const Options& options() const override { return options_; }
  Support Supports(const ConvGeometry& geometry, BackendKind backend) const override {
    return right_->Supports(geometry, backend);
  }
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return right_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, right_->Query(index, problem, context));
    const MapCall call{problem.inputs.num_batches(), context};
    return Changed(
        map, [&](Pairs& pairs) { fault_(call, pairs); }, /*keep_marks=*/true, context);
  }

 private:
  Options options_;
  std::unique_ptr<const Mapping> right_;
  MappingFault fault_;
};

}  // namespace

absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const MappingFault& fault,
                             Registry& registry) {
  return registry.mappings().Register(
      {.name = name, .summary = "for tests"},
      [&right, inner, fault](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_ASSIGN_OR_RETURN(auto mapping, right.mappings().Create(inner));
        return std::make_unique<WrappedMapping>(std::move(options), std::move(mapping), fault);
      });
}

}  // namespace voxconv::testing
