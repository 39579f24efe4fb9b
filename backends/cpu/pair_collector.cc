// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/pair_collector.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {
namespace {

// Output rows per task: small enough to balance two threads on one offset, large enough that a
// task's hits stay in the L2 cache until they are packed.
constexpr int64_t kRowsPerBlock = 8192;

// How the hits of every (offset, block of rows) lie: found apart, then packed one after the other.
struct Blocks {
  Blocks(int64_t offsets, int64_t rows)
      : rows(rows),
        per_offset((rows + kRowsPerBlock - 1) / kRowsPerBlock),
        count(offsets * per_offset) {}

  int64_t size() const { return static_cast<int64_t>(count.size()); }
  int64_t Begin(int64_t block) const { return block % per_offset * kRowsPerBlock; }
  int64_t End(int64_t block) const { return std::min(rows, Begin(block) + kRowsPerBlock); }
  int64_t Offset(int64_t block) const { return block / per_offset; }
  // Where the block's hits are found in an [offsets, rows] array.
  int64_t Slot(int64_t block) const { return Offset(block) * rows + Begin(block); }
  // Where they are packed to, the last entry for the end.
  std::vector<int64_t> Starts() const {
    std::vector<int64_t> start(count.size() + 1, 0);
    std::partial_sum(count.begin(), count.end(), start.begin() + 1);
    return start;
  }

  int64_t rows;
  int64_t per_offset;
  std::vector<int64_t> count;  // [offsets * per_offset], offset-major
};

KernelMap MakeMap(const MapProblem& problem, std::vector<int64_t> offset_ptr, PairBuffers pairs) {
  KernelMap map(problem.inputs.size(), problem.outputs.size(), std::move(offset_ptr),
                PairList(std::move(pairs)));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

// Scratch columns [rows] in the memory of found pairs that are packed already: one for each offset
// but the centre of a symmetric map, whose half of the offsets left room for twice their number.
class Columns {
 public:
  Columns(PairBuffers& found, int64_t probed, int64_t rows)
      : found_(found), probed_(probed), rows_(rows) {}
  int64_t rows() const { return rows_; }
  // Column i of 0 .. 2 probed - 1.
  int32_t* operator[](int64_t i) const {
    return i < probed_ ? found_.in.data() + i * rows_ : found_.out.data() + (i - probed_) * rows_;
  }

 private:
  PairBuffers& found_;
  int64_t probed_, rows_;
};

// Pairs in the order of `in`, put in the order of `out` (both below `rows`) through `column`.
void OrderByOutput(const int32_t* in, const int32_t* out, int64_t size, int64_t rows,
                   int32_t* column, int32_t* to_in, int32_t* to_out) {
  std::fill_n(column, rows, -1);
  for (int64_t i = 0; i < size; ++i) column[out[i]] = in[i];
  int64_t next = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (column[row] < 0) continue;
    to_in[next] = column[row];
    to_out[next++] = static_cast<int32_t>(row);
  }
}

// The CSR over all K offsets, given the starts of the probed offsets' blocks.
std::vector<int64_t> OffsetPtr(const Blocks& blocks, const std::vector<int64_t>& start,
                               int num_offsets, int probed) {
  std::vector<int64_t> offset_ptr(num_offsets + 1, 0);
  for (int k = 0; k < num_offsets; ++k) {
    int64_t size = blocks.rows;  // the centre
    const int64_t offset = k < probed ? k : num_offsets - 1 - k;
    if (offset < probed) {
      size = start[(offset + 1) * blocks.per_offset] - start[offset * blocks.per_offset];
    }
    offset_ptr[k + 1] = offset_ptr[k] + size;
  }
  return offset_ptr;
}

// Packs the hits found at blocks.Slot() into `pairs`. With `mirror` those of offset k also become,
// exchanged, those of K-1-k: right where pairs ascend on both sides.
void PackBlocks(const Blocks& blocks, const std::vector<int64_t>& start,
                const std::vector<int64_t>& offset_ptr, bool mirror, const PairBuffers& found,
                PairBuffers& pairs, const ExecutionContext& context) {
  const int64_t last = static_cast<int64_t>(offset_ptr.size()) - 2;
  ParallelRanges(context, blocks.size(), 1, [&](int64_t i, int64_t) {
    const int64_t bytes = blocks.count[i] * static_cast<int64_t>(sizeof(int32_t));
    if (bytes == 0) return;
    const int32_t* in = found.in.data() + blocks.Slot(i);
    const int32_t* out = found.out.data() + blocks.Slot(i);
    std::memcpy(pairs.in.data() + start[i], in, bytes);
    std::memcpy(pairs.out.data() + start[i], out, bytes);
    if (!mirror) return;
    const int64_t k = blocks.Offset(i);
    const int64_t to = offset_ptr[last - k] + start[i] - offset_ptr[k];
    std::memcpy(pairs.in.data() + to, out, bytes);
    std::memcpy(pairs.out.data() + to, in, bytes);
  });
}

void FillCenter(int64_t to, int64_t rows, PairBuffers& pairs, const ExecutionContext& context) {
  ParallelRanges(context, rows, kRowsPerBlock, [&](int64_t begin, int64_t end) {
    std::iota(pairs.in.data() + to + begin, pairs.in.data() + to + end, begin);
    std::iota(pairs.out.data() + to + begin, pairs.out.data() + to + end, begin);
  });
}

// The offsets above the centre from those below, where inputs do not ascend with outputs.
void MirrorUnordered(const std::vector<int64_t>& offset_ptr, const Columns& columns,
                     PairBuffers& pairs, const ExecutionContext& context) {
  const int64_t last = static_cast<int64_t>(offset_ptr.size()) - 2;
  int32_t* in = pairs.in.data();
  int32_t* out = pairs.out.data();
  ParallelRanges(context, last / 2, 1, [&](int64_t k, int64_t) {
    const int64_t from = offset_ptr[k];
    const int64_t to = offset_ptr[last - k];
    OrderByOutput(out + from, in + from, offset_ptr[k + 1] - from, columns.rows(), columns[k],
                  in + to, out + to);
  });
}

// Replaces positions by the rows at them, and restores the order by output row. Leaves offset
// `center` alone (-1: none): its pairs are not written yet.
void NameRows(const PositionRows& rows, const std::vector<int64_t>& offset_ptr, int64_t center,
              const Columns& columns, PairBuffers& pairs, const ExecutionContext& context) {
  const auto replace = [&](absl::Span<const int32_t> row_at, int64_t size, int32_t* positions) {
    if (row_at.empty()) return;
    ParallelRanges(context, size, kRowsPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) positions[i] = row_at[positions[i]];
    });
  };
  const auto replace_all = [&](absl::Span<const int32_t> row_at, int32_t* positions) {
    const int64_t skipped = center < 0 ? offset_ptr.back() : offset_ptr[center];
    const int64_t resumed = center < 0 ? offset_ptr.back() : offset_ptr[center + 1];
    replace(row_at, skipped, positions);
    replace(row_at, offset_ptr.back() - resumed, positions + resumed);
  };
  replace_all(rows.in, pairs.in.data());
  replace_all(rows.out, pairs.out.data());
  if (rows.out.empty()) return;
  const int64_t num_offsets = static_cast<int64_t>(offset_ptr.size()) - 1;
  ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
    if (k == center) return;
    int32_t* in = pairs.in.data() + offset_ptr[k];
    int32_t* out = pairs.out.data() + offset_ptr[k];
    const int64_t column = center >= 0 && k > center ? k - 1 : k;
    OrderByOutput(in, out, offset_ptr[k + 1] - offset_ptr[k], columns.rows(), columns[column], in,
                  out);
  });
}

}  // namespace

int NumProbedOffsets(const ConvGeometry& geometry, bool symmetric) {
  return symmetric ? geometry.num_offsets() / 2 : geometry.num_offsets();
}

absl::StatusOr<KernelMap> CollectPairs(const MapProblem& problem, bool symmetric, PairProbe probe,
                                       const ExecutionContext& context) {
  std::vector<std::vector<int>> groups(NumProbedOffsets(problem.geometry, symmetric));
  for (size_t k = 0; k < groups.size(); ++k) groups[k] = {static_cast<int>(k)};
  return CollectPairGroups(
      problem, symmetric, groups,
      [&](int k, int64_t begin, int64_t end, absl::Span<PairSlot> slots) {
        slots[0].count = probe(k, begin, end, slots[0].in, slots[0].out);
      },
      {}, context);
}

absl::StatusOr<KernelMap> CollectPairGroups(const MapProblem& problem, bool symmetric,
                                            absl::Span<const std::vector<int>> groups,
                                            PairGroupProbe probe, const PositionRows& rows,
                                            const ExecutionContext& context) {
  VOXCONV_CHECK(!symmetric || problem.geometry.symmetric());
  const int64_t num_rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  const int probed = NumProbedOffsets(problem.geometry, symmetric);
  VOXCONV_ASSIGN_OR_RETURN(PairBuffers found, PairBuffers::Allocate(probed * num_rows, context));

  Blocks blocks(probed, num_rows);
  const int64_t num_tasks = static_cast<int64_t>(groups.size()) * blocks.per_offset;
  ParallelRanges(context, num_tasks, 1, [&](int64_t task, int64_t) {
    // Groups vary fastest: a block's rows stay in the cache for all of them.
    const int64_t group = task % static_cast<int64_t>(groups.size());
    const int64_t block = task / static_cast<int64_t>(groups.size());
    std::vector<PairSlot> slots;
    for (int k : groups[group]) {
      const int64_t slot = blocks.Slot(k * blocks.per_offset + block);
      slots.push_back({found.in.data() + slot, found.out.data() + slot});
    }
    probe(static_cast<int>(group), blocks.Begin(block), blocks.End(block), absl::MakeSpan(slots));
    for (size_t i = 0; i < slots.size(); ++i) {
      blocks.count[groups[group][i] * blocks.per_offset + block] = slots[i].count;
    }
  });

  const std::vector<int64_t> start = blocks.Starts();
  std::vector<int64_t> offset_ptr = OffsetPtr(blocks, start, num_offsets, probed);
  VOXCONV_ASSIGN_OR_RETURN(PairBuffers pairs, PairBuffers::Allocate(offset_ptr.back(), context));
  const bool ascending = problem.inputs.sorted() || !rows.out.empty();
  PackBlocks(blocks, start, offset_ptr, symmetric && ascending, found, pairs, context);
  const Columns columns(found, probed, num_rows);
  if (symmetric && !ascending) MirrorUnordered(offset_ptr, columns, pairs, context);
  NameRows(rows, offset_ptr, symmetric ? probed : -1, columns, pairs, context);
  // By row or by position, the centre's pairs are the same: every row meets itself.
  if (symmetric) FillCenter(offset_ptr[probed], num_rows, pairs, context);
  if (Counters* counters = context.counters()) counters->queries += probed * num_rows;
  return MakeMap(problem, std::move(offset_ptr), std::move(pairs));
}

absl::StatusOr<KernelMap> CompactColumns(const MapProblem& problem, const Array<int32_t>& columns,
                                         const ExecutionContext& context) {
  const int64_t rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  VOXCONV_CHECK(columns.size() == num_offsets * rows);
  Blocks blocks(num_offsets, rows);
  const auto each_block = [&](const auto& body) {
    ParallelRanges(context, blocks.size(), 1, [&](int64_t i, int64_t) {
      body(i, columns.data() + blocks.Offset(i) * rows, blocks.Begin(i), blocks.End(i));
    });
  };
  each_block([&](int64_t i, const int32_t* column, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) count += column[row] >= 0;
    blocks.count[i] = count;
  });

  const std::vector<int64_t> start = blocks.Starts();
  std::vector<int64_t> offset_ptr(num_offsets + 1);
  for (int k = 0; k <= num_offsets; ++k) offset_ptr[k] = start[k * blocks.per_offset];
  VOXCONV_ASSIGN_OR_RETURN(PairBuffers pairs, PairBuffers::Allocate(offset_ptr.back(), context));
  each_block([&](int64_t i, const int32_t* column, int64_t begin, int64_t end) {
    int64_t next = start[i];
    for (int64_t row = begin; row < end; ++row) {
      if (column[row] < 0) continue;
      pairs.in.data()[next] = column[row];
      pairs.out.data()[next++] = static_cast<int32_t>(row);
    }
  });
  return MakeMap(problem, std::move(offset_ptr), std::move(pairs));
}

}  // namespace voxconv
