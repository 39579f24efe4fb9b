// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_map_ops.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "voxconv/backends/cpu/map_table.h"
#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 4096;

// Calls body(k, i) for each pair position i of each offset k whose output row is in [begin, end).
// Output rows ascend within an offset, so each offset contributes one run.
template <typename Body>
void ForPairsOfOutputs(const KernelMap& map, int64_t begin, int64_t end, const Body& body) {
  const int32_t* out = map.pairs().out.data();
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int32_t* last = out + map.offset_ptr()[k + 1];
    const int32_t* it = std::lower_bound(out + map.offset_ptr()[k], last, begin);
    for (; it != last && *it < end; ++it) body(k, it - out);
  }
}

// Counted at once.
class CountedPairs final : public PendingCounts {
 public:
  explicit CountedPairs(std::vector<int64_t> offset_ptr) : offset_ptr_(std::move(offset_ptr)) {}
  absl::StatusOr<std::vector<int64_t>> Take() override { return std::move(offset_ptr_); }

 private:
  std::vector<int64_t> offset_ptr_;
};

class CpuMapOps final : public MapOps {
 public:
  absl::StatusOr<std::shared_ptr<PendingCounts>> StartCounting(const KernelMap& map,
                                                               const ExecutionContext&) override {
    const SharedArray<int32_t>& table = map.table().table;
    const int num_offsets = map.num_offsets();
    std::vector<int64_t> offset_ptr(num_offsets + 1, 0);
    for (int64_t i = 0; i < table.size(); ++i) {
      if (table.data()[i] >= 0) ++offset_ptr[i % num_offsets + 1];
    }
    std::partial_sum(offset_ptr.begin(), offset_ptr.end(), offset_ptr.begin());
    return std::make_shared<CountedPairs>(std::move(offset_ptr));
  }

 protected:
  absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& map,
                                              const ExecutionContext& context) override {
    const PairList& pairs = map.pairs();
    const int num_offsets = map.num_offsets();
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> result,
                             EmptyTable(map.num_outputs(), num_offsets, context));
    int32_t* table = result.data();
    ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      ForPairsOfOutputs(map, begin, end, [&](int k, int64_t i) {
        table[int64_t{pairs.out.data()[i]} * num_offsets + k] = pairs.in.data()[i];
      });
    });
    return NeighbourTable{.table = std::move(result), .masks = {}};
  }

  absl::StatusOr<PairList> TableToPairs(const KernelMap& map,
                                        const ExecutionContext& context) override {
    const int32_t* table = map.table().table.data();
    const int num_offsets = map.num_offsets();
    VOXCONV_ASSIGN_OR_RETURN(PairBuffers pairs, PairBuffers::Allocate(map.num_pairs(), context));
    ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
      int64_t next = map.offset_ptr()[k];
      for (int64_t row = 0; row < map.num_outputs(); ++row) {
        const int32_t in = table[row * num_offsets + k];
        if (in < 0) continue;
        pairs.in.data()[next] = in;
        pairs.out.data()[next++] = static_cast<int32_t>(row);
      }
    });
    return PairList(std::move(pairs));
  }

  absl::StatusOr<PairList> TransposePairs(const KernelMap& map,
                                          const ExecutionContext& context) override {
    const PairList& pairs = map.pairs();
    VOXCONV_ASSIGN_OR_RETURN(PairBuffers swapped, PairBuffers::Allocate(map.num_pairs(), context));
    // (input row, output row) of every pair, in one word.
    VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> words,
                             AllocateArray<uint64_t>(map.num_pairs(), context));
    ParallelRanges(context, map.num_offsets(), 1, [&](int64_t k, int64_t) {
      const int64_t begin = map.offset_ptr()[k], end = map.offset_ptr()[k + 1];
      uint64_t* word = words.data();
      for (int64_t i = begin; i < end; ++i) {
        word[i] = static_cast<uint64_t>(pairs.in.data()[i]) << 32 |
                  static_cast<uint32_t>(pairs.out.data()[i]);
      }
      // An input row occurs at most once an offset too, so sorting by it gives a total order.
      if (!std::is_sorted(word + begin, word + end)) std::sort(word + begin, word + end);
      for (int64_t i = begin; i < end; ++i) {
        swapped.out.data()[i] = static_cast<int32_t>(word[i] >> 32);
        swapped.in.data()[i] = static_cast<int32_t>(word[i] & UINT32_MAX);
      }
    });
    return PairList(std::move(swapped));
  }

  absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& map,
                                                const ExecutionContext& context) override {
    const int num_offsets = map.num_offsets();
    const int32_t* table = map.table().table.data();
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> result,
                             EmptyTable(map.num_inputs(), num_offsets, context));
    // Each (row, offset) entry is written at most once, so offsets may run concurrently.
    ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
      for (int64_t row = 0; row < map.num_outputs(); ++row) {
        const int32_t in = table[row * num_offsets + k];
        if (in >= 0) result.data()[int64_t{in} * num_offsets + k] = static_cast<int32_t>(row);
      }
    });
    return NeighbourTable{.table = std::move(result), .masks = {}};
  }
};

}  // namespace

absl::StatusOr<Array<int32_t>> EmptyTable(int64_t rows, int num_offsets,
                                          const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, AllocateTable(rows, num_offsets, context));
  ParallelRanges(context, table.size(), kRowsPerTask * 16, [&](int64_t begin, int64_t end) {
    std::fill(table.data() + begin, table.data() + end, -1);
  });
  return table;
}

std::unique_ptr<MapOps> MakeCpuMapOps() { return std::make_unique<CpuMapOps>(); }

}  // namespace voxconv
