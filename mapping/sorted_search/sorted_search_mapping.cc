// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/sorted_search/sorted_search_mapping.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/mapping/sorted_search/segment_search_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxSourceBlock = 1 << 20;
constexpr int64_t kDefaultSourceBlock = 256;
constexpr int64_t kDefaultQueryBlock = 512;

// In the order of SortedSearchMapping::Variant.
const std::vector<std::string>& VariantNames() {
  static const auto* names =
      new std::vector<std::string>{"naive", "full", "segmented", "double_traversed", "z_walk"};
  return *names;
}

}  // namespace

PluginDescription SortedSearchMapping::Describe() {
  PluginDescription description;
  description.name = "sorted_search";
  description.summary = "search of the sorted input coordinates for sorted queries";
  description.source = "Minuet (EuroSys 2024), Section 5.1; z_walk is our own";
  description.options
      .Enum("variant", VariantNames(), "z_walk",
            "search of the sorted input coordinates: per query in row order, all queries sorted, "
            "per sorted segment, per source block of a segment, or one walk for all z")
      .Int("source_block", kDefaultSourceBlock, 1, kMaxSourceBlock,
           "keys in a source block (Minuet's B); double_traversed only")
      .Int("query_block", kDefaultQueryBlock, 1, kMaxQueryBlock,
           "queries in a query block (Minuet's C); double_traversed only")
      .Enum("table", {"output_major", "offset_major"}, "output_major",
            "CUDA: what a search writes: the offsets of an output row side by side, or the rows of "
            "an offset, from which the pairs are read (Minuet); double_traversed only")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  description.extra_variants = {"variant=double_traversed,source_block=1,query_block=1",
                                "variant=double_traversed,source_block=7,query_block=3",
                                "variant=double_traversed,source_block=7,query_block=3,"
                                "table=offset_major"};
  return description;
}

absl::Status SortedSearchMapping::CheckOptions(const Options& options) {
  const std::string& variant = options.GetEnum("variant");
  if (options.GetEnum("table") == "offset_major") {
    if (variant != "double_traversed") {
      return absl::InvalidArgumentError(
          absl::StrCat("table=offset_major: variant=", variant,
                       " writes no such table; allowed with double_traversed"));
    }
    if (options.GetBool("symmetric")) {
      return absl::InvalidArgumentError(
          "symmetric=true: table=offset_major has an entry for every query; allowed with "
          "output_major");
    }
  }
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

SortedSearchMapping::SortedSearchMapping(Options options)
    : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {
  const std::vector<std::string>& names = VariantNames();
  const auto name = std::find(names.begin(), names.end(), options_.GetEnum("variant"));
  variant_ = static_cast<Variant>(name - names.begin());
}

}  // namespace voxconv
