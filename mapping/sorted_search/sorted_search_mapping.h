// The plugin class of mapping "sorted_search": its options, what it supports, and which search
// runs.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "core/options.h"

namespace voxconv {

class SortedSearchMapping final : public Mapping {
 public:
  static OptionSchema Schema();
  explicit SortedSearchMapping(Options options);

  const Options& options() const override { return options_; }
  Support Supports(const ConvGeometry& geometry, BackendKind backend) const override;
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override;
  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override;

 private:
  enum class Variant { kNaive, kFull, kSegmented, kDoubleTraversed, kZWalk };

  // Search: SortedSearch or SortedSearchCuda; `build` sorts a set's keys.
  template <typename Search, typename Keys>
  absl::StatusOr<KernelMap> QueryWith(const MapIndex& index, const MapProblem& problem,
                                      absl::StatusOr<Keys> (*build)(const CoordinateSet&,
                                                                    const ExecutionContext&),
                                      const ExecutionContext& context) const;

  Options options_;
  Variant variant_;
  bool symmetric_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_
