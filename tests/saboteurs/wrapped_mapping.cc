// SPDX-License-Identifier: Apache-2.0
#include "tests/saboteurs/wrapped_mapping.h"

#include <memory>
#include <utility>

#include "tests/saboteurs/wrapped_family.h"

namespace voxconv::testing {
namespace {

class WrappedMapping final : public Mapping {
 public:
  WrappedMapping(Options options, std::unique_ptr<const Mapping> right, MappingFault fault)
      : options_(std::move(options)), right_(std::move(right)), fault_(std::move(fault)) {}

  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry& geometry) const override {
    return right_->Supports(geometry);
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return right_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
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
  return RegisterWrappedIn(
      registry.mappings(), right.mappings(), name, inner,
      [fault](Options options, std::unique_ptr<const Mapping> mapping, BackendKind) {
        return std::make_unique<WrappedMapping>(std::move(options), std::move(mapping), fault);
      });
}

}  // namespace voxconv::testing
