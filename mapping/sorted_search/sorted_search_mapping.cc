#include "mapping/sorted_search/sorted_search_mapping.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "mapping/sorted_search/full_search_cpu.h"
#include "mapping/sorted_search/register.h"
#include "mapping/sorted_search/segment_search_cpu.h"
#include "mapping/sorted_search/sorted_keys_cpu.h"
#include "mapping/sorted_search/sorted_keys_cuda.h"
#include "mapping/sorted_search/sorted_search_cuda.h"
#include "mapping/sorted_search/z_walk_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxSourceBlock = 1 << 20;
constexpr int64_t kDefaultSourceBlock = 256;
constexpr int64_t kDefaultQueryBlock = 512;

// An option that would change nothing is refused, not ignored.
absl::Status CheckBlocks(const Options& options) {
  const std::string& variant = options.GetEnum("variant");
  if (variant == "double_traversed") return absl::OkStatus();
  for (const auto& [name, default_value] : {std::pair{"source_block", kDefaultSourceBlock},
                                            std::pair{"query_block", kDefaultQueryBlock}}) {
    if (options.GetInt(name) == default_value) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, "=", options.GetInt(name),
                                                   ": variant=", variant,
                                                   " has none; allowed with double_traversed"));
  }
  return absl::OkStatus();
}

// In the order of SortedSearchMapping::Variant.
const std::vector<std::string>& VariantNames() {
  static const auto* names =
      new std::vector<std::string>{"naive", "full", "segmented", "double_traversed", "z_walk"};
  return *names;
}

// Keys: SortedKeys or SortedKeysCuda.
template <typename Keys>
class SortedSearchIndex final : public MapIndex {
 public:
  explicit SortedSearchIndex(Keys source) : source_(std::move(source)) {}
  int64_t bytes() const override { return source_.bytes(); }
  const Keys& source() const { return source_; }

 private:
  Keys source_;
};

}  // namespace

OptionSchema SortedSearchMapping::Schema() {
  OptionSchema schema;
  schema
      .Enum("variant", VariantNames(), "z_walk",
            "search of the sorted input coordinates: per query in row order, all queries sorted, "
            "per sorted segment, per source block of a segment, or one walk for all z")
      .Int("source_block", kDefaultSourceBlock, 1, kMaxSourceBlock,
           "keys in a source block (Minuet's B); double_traversed only")
      .Int("query_block", kDefaultQueryBlock, 1, kMaxQueryBlock,
           "queries in a query block (Minuet's C); double_traversed only")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  return schema;
}

SortedSearchMapping::SortedSearchMapping(Options options)
    : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {
  const std::vector<std::string>& names = VariantNames();
  const auto name = std::find(names.begin(), names.end(), options_.GetEnum("variant"));
  variant_ = static_cast<Variant>(name - names.begin());
}

Support SortedSearchMapping::Supports(const ConvGeometry&, BackendKind backend) const {
  return CpuAndCuda("sorted_search", backend);
}

absl::StatusOr<std::unique_ptr<MapIndex>> SortedSearchMapping::BuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kIndexBuild);
  std::unique_ptr<MapIndex> index;
  if constexpr (kHaveCuda) {
    if (context.backend->kind() == BackendKind::kCuda) {
      VOXCONV_ASSIGN_OR_RETURN(SortedKeysCuda source, BuildSortedKeysCuda(inputs, context));
      index = std::make_unique<SortedSearchIndex<SortedKeysCuda>>(std::move(source));
    }
  }
  if (index == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(SortedKeys source, BuildSortedKeys(inputs, context));
    index = std::make_unique<SortedSearchIndex<SortedKeys>>(std::move(source));
  }
  if (Counters* counters = context.counters()) {
    counters->index_bytes = std::max(counters->index_bytes, index->bytes());
  }
  return index;
}

absl::StatusOr<KernelMap> SortedSearchMapping::Query(const MapIndex& index,
                                                     const MapProblem& problem,
                                                     const ExecutionContext& context) const {
  if constexpr (kHaveCuda) {
    if (context.backend->kind() == BackendKind::kCuda) {
      return QueryWith<SortedSearchCuda>(index, problem, &BuildSortedKeysCuda, context);
    }
  }
  return QueryWith<SortedSearch>(index, problem, &BuildSortedKeys, context);
}

template <typename Search, typename Keys>
absl::StatusOr<KernelMap> SortedSearchMapping::QueryWith(
    const MapIndex& index, const MapProblem& problem,
    absl::StatusOr<Keys> (*build)(const CoordinateSet&, const ExecutionContext&),
    const ExecutionContext& context) const {
  const Search search{problem, static_cast<const SortedSearchIndex<Keys>&>(index).source(),
                      symmetric_ && problem.geometry.symmetric()};
  if (variant_ == Variant::kFull) return FullSearch(search, context);
  if (variant_ == Variant::kNaive) {
    const StageScope stage(context, Stage::kMapQuery);
    return NaiveSearch(search, context);
  }
  // One array serves both sides where they are the same voxels.
  Keys sorted;
  const bool same = problem.inputs.id() == problem.outputs.id();
  if (!same) {
    const StageScope stage(context, Stage::kIndexBuild);
    VOXCONV_ASSIGN_OR_RETURN(sorted, build(problem.outputs, context));
  }
  const Keys& outputs = same ? search.source : sorted;
  const StageScope stage(context, Stage::kMapQuery);
  if (variant_ == Variant::kSegmented) return SegmentedSearch(search, outputs, context);
  if (variant_ == Variant::kDoubleTraversed) {
    return DoubleTraversedSearch(search, outputs, options_.GetInt("source_block"),
                                 options_.GetInt("query_block"), context);
  }
  return ZWalkSearch(search, outputs, context);
}

absl::Status RegisterSortedSearchMapping(Registry& registry) {
  return registry.mappings().Register(
      {.name = "sorted_search",
       .summary = "search of the sorted input coordinates for sorted queries",
       .source = "Minuet (EuroSys 2024), Section 5.1; z_walk is our own",
       .options = SortedSearchMapping::Schema(),
       .extra_variants = {"variant=double_traversed,source_block=1,query_block=1",
                          "variant=double_traversed,source_block=7,query_block=3"}},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(CheckBlocks(options));
        return std::make_unique<const SortedSearchMapping>(std::move(options));
      });
}

}  // namespace voxconv
