// SPDX-License-Identifier: Apache-2.0
// What mapping "sorted_search" is on every backend: its options, its index, and which search runs.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

class SortedSearchMapping : public Mapping {
 public:
  static PluginDescription Describe();
  // kInvalidArgument for options that the variant does not read.
  static absl::Status CheckOptions(const Options& options);

  const Options& options() const final { return options_; }
  Support DoSupports(const ConvGeometry&) const final { return Support::Yes(); }

 protected:
  // In the order of the option's choices.
  enum class Variant { kNaive, kFull, kSegmented, kDoubleTraversed, kZWalk };

  explicit SortedSearchMapping(Options options);

  Variant variant() const { return variant_; }
  // Whether half of the offsets are looked up.
  bool Mirrors(const MapProblem& problem) const {
    return symmetric_ && problem.geometry.symmetric();
  }
  int64_t source_block() const { return options_.GetInt("source_block"); }
  int64_t query_block() const { return options_.GetInt("query_block"); }
  bool offset_major() const { return options_.GetEnum("table") == "offset_major"; }

 private:
  Options options_;
  Variant variant_;
  bool symmetric_;
};

// The mapping on one backend. `Search` has the arguments of the backend's searches: SortedSearch or
// SortedSearchCuda. `Keys` is SortedKeys or SortedKeysCuda, and `kBuild` makes them.
// `kHasOffsetTable`: the backend has OffsetMajorSearch. Others must refuse the option.
template <typename Search, typename Keys,
          absl::StatusOr<Keys> (*kBuild)(const CoordinateSet&, const ExecutionContext&),
          bool kHasOffsetTable>
class SortedSearchMappingOn final : public SortedSearchMapping {
 public:
  explicit SortedSearchMappingOn(Options options) : SortedSearchMapping(std::move(options)) {}

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(Keys source, kBuild(inputs, context));
    return std::make_unique<Index>(std::move(source));
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const Search search{problem, static_cast<const Index&>(index).source(), Mirrors(problem)};
    if (variant() == Variant::kNaive) return NaiveSearch(search, context);
    if (variant() == Variant::kFull) return FullSearch(search, context);
    // If inputs and outputs are the same voxels, one array serves both.
    Keys sorted;
    const bool same = problem.inputs.id() == problem.outputs.id();
    if (!same) {
      const StageScope stage(context, Stage::kIndexBuild);
      VOXCONV_ASSIGN_OR_RETURN(sorted, kBuild(problem.outputs, context));
    }
    const Keys& outputs = same ? search.source : sorted;
    if (variant() == Variant::kSegmented) return SegmentedSearch(search, outputs, context);
    if (variant() == Variant::kZWalk) return ZWalkSearch(search, outputs, context);
    if constexpr (kHasOffsetTable) {
      if (offset_major()) {
        return OffsetMajorSearch(search, outputs, source_block(), query_block(), context);
      }
    }
    return DoubleTraversedSearch(search, outputs, source_block(), query_block(), context);
  }

 private:
  class Index final : public MapIndex {
   public:
    explicit Index(Keys source) : source_(std::move(source)) {}
    int64_t bytes() const override { return source_.bytes(); }
    const Keys& source() const { return source_; }

   private:
    Keys source_;
  };
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_MAPPING_H_
