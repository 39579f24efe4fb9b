#include "backends/cpu/pair_collector.h"

#include <cstring>
#include <vector>

#include "backends/cpu/parallel.h"

namespace voxconv {
namespace {

// Output rows per task: small enough to balance two threads on one offset, large enough that a
// task's hits stay in the L2 cache until they are packed.
constexpr int64_t kRowsPerBlock = 8192;

// Hits of every (offset, block), found apart and then packed one after the other.
struct Blocks {
  int64_t per_offset = 0;
  std::vector<int64_t> count;  // [K * per_offset], offset-major

  std::vector<int64_t> Starts() const {
    std::vector<int64_t> start(count.size() + 1, 0);
    for (size_t i = 0; i < count.size(); ++i) start[i + 1] = start[i] + count[i];
    return start;
  }
};

KernelMap MakeMap(const MapProblem& problem, std::vector<int64_t> offset_ptr, PairList pairs) {
  KernelMap map(problem.inputs.size(), problem.outputs.size(), std::move(offset_ptr), {},
                std::move(pairs));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

absl::StatusOr<PairList> AllocatePairs(int64_t size, const ExecutionContext& context) {
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(size, context));
  return pairs;
}

// Fills the transposed offset `to` from the pairs (in, out) of its mirror. Where the mirror's
// inputs ascend (sorted coordinates: p and p - d ascend together) its pairs are copied swapped;
// else they are put in order through a column of all rows.
void Mirror(const int32_t* in, const int32_t* out, int64_t size, int64_t rows, int32_t* to_in,
            int32_t* to_out) {
  bool ascending = true;
  for (int64_t i = 1; i < size && ascending; ++i) ascending = in[i - 1] < in[i];
  if (ascending) {
    std::memcpy(to_in, out, size * sizeof(int32_t));
    std::memcpy(to_out, in, size * sizeof(int32_t));
    return;
  }
  std::vector<int32_t> column(rows, -1);
  for (int64_t i = 0; i < size; ++i) column[in[i]] = out[i];
  int64_t next = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (column[row] < 0) continue;
    to_in[next] = column[row];
    to_out[next++] = static_cast<int32_t>(row);
  }
}

// Pairs of the centre and of the mirrored offsets, given those of the offsets below the centre.
void CompleteSymmetric(const std::vector<int64_t>& offset_ptr, int64_t rows, PairList& pairs,
                       const ExecutionContext& context) {
  const int num_offsets = static_cast<int>(offset_ptr.size()) - 1;
  const int center = num_offsets / 2;
  int32_t* in = pairs.in.data();
  int32_t* out = pairs.out.data();
  ParallelRanges(context, center + 1, 1, [&](int64_t k, int64_t) {
    if (k == center) {
      for (int64_t row = 0; row < rows; ++row) {
        in[offset_ptr[k] + row] = out[offset_ptr[k] + row] = static_cast<int32_t>(row);
      }
      return;
    }
    const int64_t from = offset_ptr[k];
    const int64_t to = offset_ptr[num_offsets - 1 - k];
    Mirror(in + from, out + from, offset_ptr[k + 1] - from, rows, in + to, out + to);
  });
}

}  // namespace

absl::StatusOr<KernelMap> CollectPairs(const MapProblem& problem, bool symmetric, PairProbe probe,
                                       const ExecutionContext& context) {
  VOXCONV_CHECK(!symmetric || problem.geometry.symmetric());
  const int64_t rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  const int probed = symmetric ? num_offsets / 2 : num_offsets;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> found_in, AllocateArray<int32_t>(probed * rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> found_out,
                           AllocateArray<int32_t>(probed * rows, context));

  Blocks blocks;
  blocks.per_offset = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  blocks.count.resize(probed * blocks.per_offset);
  const auto begin_of = [&](int64_t i) { return i % blocks.per_offset * kRowsPerBlock; };
  const auto slot_of = [&](int64_t i) { return i / blocks.per_offset * rows + begin_of(i); };
  const int64_t num_blocks = static_cast<int64_t>(blocks.count.size());
  ParallelRanges(context, num_blocks, 1, [&](int64_t i, int64_t) {
    const int64_t begin = begin_of(i);
    blocks.count[i] =
        probe(static_cast<int>(i / blocks.per_offset), begin, std::min(rows, begin + kRowsPerBlock),
              found_in.data() + slot_of(i), found_out.data() + slot_of(i));
  });

  const std::vector<int64_t> start = blocks.Starts();
  std::vector<int64_t> offset_ptr(num_offsets + 1, 0);
  for (int k = 0; k < num_offsets; ++k) {
    int64_t size = rows;  // the centre
    const int mirror = num_offsets - 1 - k;
    if (k < probed || mirror < probed) {
      const int from = k < probed ? k : mirror;
      size = start[(from + 1) * blocks.per_offset] - start[from * blocks.per_offset];
    }
    offset_ptr[k + 1] = offset_ptr[k] + size;
  }

  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, AllocatePairs(offset_ptr.back(), context));
  ParallelRanges(context, num_blocks, 1, [&](int64_t i, int64_t) {
    const int64_t bytes = blocks.count[i] * static_cast<int64_t>(sizeof(int32_t));
    if (bytes == 0) return;
    std::memcpy(pairs.in.data() + start[i], found_in.data() + slot_of(i), bytes);
    std::memcpy(pairs.out.data() + start[i], found_out.data() + slot_of(i), bytes);
  });
  if (symmetric) CompleteSymmetric(offset_ptr, rows, pairs, context);
  if (Counters* counters = context.counters()) counters->queries += probed * rows;
  return MakeMap(problem, std::move(offset_ptr), std::move(pairs));
}

absl::StatusOr<KernelMap> CompactColumns(const MapProblem& problem, const Array<int32_t>& columns,
                                         const ExecutionContext& context) {
  const int64_t rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  VOXCONV_CHECK(columns.size() == num_offsets * rows);
  Blocks blocks;
  blocks.per_offset = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  blocks.count.resize(num_offsets * blocks.per_offset);
  const int64_t num_blocks = static_cast<int64_t>(blocks.count.size());
  const auto each_block = [&](const auto& body) {
    ParallelRanges(context, num_blocks, 1, [&](int64_t i, int64_t) {
      const int64_t begin = i % blocks.per_offset * kRowsPerBlock;
      body(i, columns.data() + i / blocks.per_offset * rows, begin,
           std::min(rows, begin + kRowsPerBlock));
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
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, AllocatePairs(offset_ptr.back(), context));
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
