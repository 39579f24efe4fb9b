// The plugin class of mapping "perfect_hash": its options and what it supports.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "core/options.h"

namespace voxconv {

class PerfectHashMapping final : public Mapping {
 public:
  static OptionSchema Schema();
  explicit PerfectHashMapping(Options options);

  const Options& options() const override { return options_; }
  Support Supports(const ConvGeometry& geometry, BackendKind backend) const override;
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override;
  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override;

 private:
  absl::StatusOr<std::unique_ptr<MapIndex>> MakeIndex(const CoordinateSet& inputs,
                                                      const ExecutionContext& context) const;

  Options options_;
  bool symmetric_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_
