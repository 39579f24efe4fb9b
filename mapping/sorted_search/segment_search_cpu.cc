// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/sorted_search/segment_search_cpu.h"

#include <array>
#include <vector>

#include "voxconv/backends/cpu/pair_collector.h"

namespace voxconv {
namespace {

// One group of one offset for each segment.
std::vector<std::vector<int>> SingleOffsets(const SortedSearch& search) {
  const int probed = NumProbedOffsets(search.problem.geometry, search.symmetric);
  std::vector<std::vector<int>> groups(probed);
  for (int k = 0; k < probed; ++k) groups[k] = {k};
  return groups;
}

// The queries [begin, end) of one segment.
struct Segment {
  Segment(const SortedSearch& search, const SortedKeys& outputs, int k)
      : source(search.source.keys.data()),
        source_size(search.source.size()),
        queries(outputs.keys.data()),
        offset(search.problem.geometry.InputOffset(k)),
        delta(KeyDelta(offset)),
        checked(!search.problem.outputs.StaysInRange({&offset, 1})) {}

  uint64_t Key(int64_t query) const { return queries[query] + delta; }
  // Appends the pair of `query` if `position`, the lower bound of its key, holds that key.
  void Emit(int64_t query, int64_t position, PairSlot& slot) const {
    slot.in[slot.count] = static_cast<int32_t>(position);
    slot.out[slot.count] = static_cast<int32_t>(query);
    bool hit = source[position] == Key(query);
    if (checked) hit = hit && IsNeighbour(source[position], queries[query], offset);
    slot.count += hit;
  }

  const uint64_t* source;
  int64_t source_size;
  const uint64_t* queries;
  Int3 offset;
  uint64_t delta;
  bool checked;
};

// First query of [begin, end) whose key is above `pivot`.
int64_t BackwardSearch(const Segment& segment, int64_t begin, int64_t end, uint64_t pivot) {
  // q + d > pivot iff q > pivot - d; none of the differences wraps.
  return LowerBound(segment.queries, begin, end, pivot - segment.delta + 1);
}

// Searches queries [begin, end), at most kMaxQueryBlock, in source block [first, last), all of
// them one step at a time: the steps of different queries overlap in the pipeline.
void ForwardSearch(const Segment& segment, int64_t first, int64_t last, int64_t begin, int64_t end,
                   PairSlot& slot) {
  std::array<uint32_t, kMaxQueryBlock> position;
  const int64_t count = end - begin;
  std::fill(position.begin(), position.begin() + count, 0);
  const uint64_t* block = segment.source + first;
  int64_t length = last - first;
  while (length > 1) {
    const uint32_t half = static_cast<uint32_t>(length / 2);
    for (int64_t i = 0; i < count; ++i) {
      position[i] += block[position[i] + half - 1] < segment.Key(begin + i) ? half : 0;
    }
    length -= half;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t found = first + position[i] + (block[position[i]] < segment.Key(begin + i));
    segment.Emit(begin + i, found, slot);
  }
}

}  // namespace

absl::StatusOr<KernelMap> NaiveSearch(const SortedSearch& search, const ExecutionContext& context) {
  const MapProblem& problem = search.problem;
  const SortedKeys& source = search.source;
  const Coordinate* queries = problem.outputs.rows().data();
  const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
    const Int3& offset = problem.geometry.InputOffset(k);
    const uint64_t delta = KeyDelta(offset);
    const bool checked = !problem.outputs.StaysInRange({&offset, 1});
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const uint64_t query = SearchKey(queries[row]);
      const int64_t position = LowerBound(source.keys.data(), 0, source.size(), query + delta);
      const uint64_t found = source.keys.data()[position];
      if (found != query + delta || (checked && !IsNeighbour(found, query, offset))) continue;
      in[count] = source.RowAt(position);
      out[count++] = static_cast<int32_t>(row);
    }
    return count;
  };
  return CollectPairs(problem, search.symmetric, probe, context);
}

absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearch& search, const SortedKeys& outputs,
                                          const ExecutionContext& context) {
  const auto probe = [&](int k, int64_t begin, int64_t end, absl::Span<PairSlot> slots) {
    const Segment segment(search, outputs, k);
    for (int64_t query = begin; query < end; ++query) {
      segment.Emit(query, LowerBound(segment.source, 0, segment.source_size, segment.Key(query)),
                   slots[0]);
    }
  };
  return CollectPairGroups(search.problem, search.symmetric, SingleOffsets(search), probe,
                           {search.source.row_at(), outputs.row_at()}, context);
}

absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearch& search,
                                                const SortedKeys& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context) {
  VOXCONV_CHECK(source_block >= 1 && query_block >= 1 && query_block <= kMaxQueryBlock);
  // The queries [begin, end) are a piece of the segment, and are treated as a segment themselves:
  // it starts in the source block that holds the lower bound of its first key.
  const auto probe = [&](int k, int64_t begin, int64_t end, absl::Span<PairSlot> slots) {
    const Segment segment(search, outputs, k);
    int64_t first = LowerBound(segment.source, 0, segment.source_size, segment.Key(begin)) /
                    source_block * source_block;
    for (; begin < end && first < segment.source_size; first += source_block) {
      const int64_t last = std::min(first + source_block, segment.source_size);
      const int64_t next = BackwardSearch(segment, begin, end, segment.source[last - 1]);
      for (; begin < next; begin = std::min(next, begin + query_block)) {
        ForwardSearch(segment, first, last, begin, std::min(next, begin + query_block), slots[0]);
      }
    }
  };
  return CollectPairGroups(search.problem, search.symmetric, SingleOffsets(search), probe,
                           {search.source.row_at(), outputs.row_at()}, context);
}

}  // namespace voxconv
