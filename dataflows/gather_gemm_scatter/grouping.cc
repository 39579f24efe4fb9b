// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"

#include <algorithm>
#include <cstdint>

namespace voxconv {
namespace {

// What a scan takes as a whole: an offset, or an offset and its mirror.
struct Unit {
  std::vector<int> offsets;
  int64_t pairs = 0;  // of the larger map
};

// The units in offset order, without identity and empty offsets.
std::vector<Unit> MakeUnits(absl::Span<const int64_t> map_sizes, bool symmetric,
                            int identity_offset) {
  const int num_offsets = static_cast<int>(map_sizes.size());
  const int scanned = symmetric ? num_offsets / 2 : num_offsets;
  std::vector<Unit> units;
  for (int k = 0; k < scanned; ++k) {
    Unit unit;
    for (int offset : {k, symmetric ? num_offsets - 1 - k : k}) {
      if (offset == identity_offset || map_sizes[offset] == 0) continue;
      if (!unit.offsets.empty() && unit.offsets.back() == offset) continue;
      unit.offsets.push_back(offset);
      unit.pairs = std::max(unit.pairs, map_sizes[offset]);
    }
    if (!unit.offsets.empty()) units.push_back(std::move(unit));
  }
  return units;
}

void Append(const Unit& unit, OffsetGroup& group) {
  group.offsets.insert(group.offsets.end(), unit.offsets.begin(), unit.offsets.end());
  group.max_pairs = std::max(group.max_pairs, unit.pairs);
}

void AppendBatched(absl::Span<const Unit> units, std::vector<OffsetGroup>& groups) {
  if (units.empty()) return;
  OffsetGroup group;
  for (const Unit& unit : units) Append(unit, group);
  group.batched = group.offsets.size() > 1;
  groups.push_back(std::move(group));
}

std::vector<OffsetGroup> RaggedGroup(absl::Span<const int64_t> map_sizes, int identity_offset) {
  OffsetGroup group;
  for (const Unit& unit : MakeUnits(map_sizes, /*symmetric=*/false, identity_offset)) {
    Append(unit, group);
  }
  group.ragged = true;
  if (group.offsets.empty()) return {};
  return {std::move(group)};
}

std::vector<OffsetGroup> SeparateGroups(absl::Span<const int64_t> map_sizes, int identity_offset) {
  std::vector<OffsetGroup> groups;
  for (const Unit& unit : MakeUnits(map_sizes, /*symmetric=*/false, identity_offset)) {
    groups.push_back({unit.offsets, unit.pairs, /*batched=*/false});
  }
  return groups;
}

// Section 4.2.2: in submanifold layers offsets 0 to 3 (and their mirrors) have similar sizes, and
// so have the rest but the centre, which is the third group. In other layers all sizes are
// similar: three equal ranges of offsets.
std::vector<OffsetGroup> FixedGroups(absl::Span<const Unit> units, int num_offsets,
                                     bool symmetric) {
  const int third = (num_offsets + 2) / 3;
  const auto group_of = [&](const Unit& unit) {
    const int k = unit.offsets.front();
    if (!symmetric) return k / third;
    return std::min(k, num_offsets - 1 - k) < 4 ? 0 : 1;
  };
  std::vector<OffsetGroup> groups;
  for (size_t begin = 0; begin < units.size();) {
    size_t end = begin + 1;
    while (end < units.size() && group_of(units[end]) == group_of(units[begin])) ++end;
    AppendBatched(units.subspan(begin, end - begin), groups);
    begin = end;
  }
  return groups;
}

// The maps of a group that grows.
struct Growth {
  int64_t least = INT64_MAX, most = 0, maps = 0, pairs = 0;

  void Add(const Unit& unit) {
    const auto offsets = static_cast<int64_t>(unit.offsets.size());
    least = std::min(least, unit.pairs);
    most = std::max(most, unit.pairs);
    maps += offsets;
    pairs += offsets * unit.pairs;  // a pair of mirrored maps is equally large
  }

  // Algorithm 4. As printed it starts every group with n_min = 0, under which no group could grow;
  // the minimum over the group is meant.
  double PaddingOfSmallest() const {
    return 1 - static_cast<double>(least) / static_cast<double>(most);
  }
  double PaddingPerPair() const {
    return static_cast<double>(maps * most - pairs) / static_cast<double>(pairs);
  }
};

std::vector<OffsetGroup> AdaptiveGroups(absl::Span<const Unit> units, const GroupingRule& rule) {
  const bool sorted = rule.grouping == Grouping::kSortedAdaptive;
  std::vector<OffsetGroup> groups;
  for (size_t i = 0; i < units.size();) {
    Growth growth;
    growth.Add(units[i]);
    OffsetGroup group;
    Append(units[i++], group);
    for (; i < units.size(); ++i) {
      growth.Add(units[i]);
      const double padding = sorted ? growth.PaddingPerPair() : growth.PaddingOfSmallest();
      if (padding > rule.epsilon) break;
      Append(units[i], group);
    }
    group.batched = group.offsets.size() > 1 && group.max_pairs < rule.threshold;
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

std::vector<OffsetGroup> GroupOffsets(absl::Span<const int64_t> map_sizes, bool symmetric,
                                      int identity_offset, const GroupingRule& rule) {
  if (rule.grouping == Grouping::kSeparate) return SeparateGroups(map_sizes, identity_offset);
  if (rule.grouping == Grouping::kRagged) return RaggedGroup(map_sizes, identity_offset);
  const int num_offsets = static_cast<int>(map_sizes.size());
  std::vector<Unit> units = MakeUnits(map_sizes, symmetric, identity_offset);
  if (rule.grouping == Grouping::kSortedAdaptive) {
    std::stable_sort(units.begin(), units.end(),
                     [](const Unit& a, const Unit& b) { return a.pairs < b.pairs; });
  }

  std::vector<OffsetGroup> groups;
  switch (rule.grouping) {
    case Grouping::kSeparate:
    case Grouping::kRagged:
      break;
    case Grouping::kSymmetric:
      for (const Unit& unit : units) AppendBatched({&unit, 1}, groups);
      break;
    case Grouping::kFixed:
      groups = FixedGroups(units, num_offsets, symmetric);
      break;
    case Grouping::kAdaptive:
    case Grouping::kSortedAdaptive:
      groups = AdaptiveGroups(units, rule);
      break;
  }
  // A symmetric map's scan leaves the centre out; without a known identity it is a map like others.
  const int center = num_offsets / 2;
  if (symmetric && num_offsets % 2 == 1 && center != identity_offset && map_sizes[center] > 0) {
    groups.push_back({{center}, map_sizes[center], /*batched=*/false});
  }
  return groups;
}

}  // namespace voxconv
