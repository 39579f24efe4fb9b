// SPDX-License-Identifier: Apache-2.0
// One bit a cell. The row of an occupied cell is found by its rank: the rank of its word's first
// cell plus the occupied cells before it in the word. Ranks follow the order in which words are
// first met in the rows, and a permutation leads from rank to row, so rows may come in any order.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/mapping/grid/cell_order_cpu.h"
#include "voxconv/mapping/grid/grid_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 65536;
constexpr int64_t kCellsPerWord = 64;

constexpr uint64_t BitOf(int64_t cell) { return uint64_t{1} << (cell & (kCellsPerWord - 1)); }

// Memory of a grid, filled and read by the functions below.
struct Bitmap {
  Array<uint64_t> words;      // a bit for each of 64 cells
  Array<uint32_t> word_rank;  // of each word; meaningful where the word is not 0
  Array<int32_t> row_of_rank;

  int64_t RankOf(int64_t cell) const {
    const int64_t word = cell / kCellsPerWord;
    return word_rank.data()[word] + absl::popcount(words.data()[word] & (BitOf(cell) - 1));
  }
};

void SetBits(const int64_t* cells, int64_t size, Bitmap& bitmap, const ExecutionContext& context) {
  uint64_t* const words = bitmap.words.data();
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::atomic_ref<uint64_t> word(words[cells[i] / kCellsPerWord]);
      word.fetch_or(BitOf(cells[i]), std::memory_order_relaxed);
    }
  });
}

// The row that holds a word's lowest cell speaks for the word: so each word is ranked once, in an
// order that is the same for any number of threads.
void RankWords(const int64_t* cells, int64_t size, Bitmap& bitmap,
               const ExecutionContext& context) {
  const uint64_t* const words = bitmap.words.data();
  const auto occupancy = [&](int64_t cell) -> int64_t {
    const uint64_t word = words[cell / kCellsPerWord];
    return (word & (BitOf(cell) - 1)) == 0 ? absl::popcount(word) : 0;
  };
  std::vector<int64_t> first((size + kRowsPerTask - 1) / kRowsPerTask);
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t ranks = 0;
    for (int64_t i = begin; i < end; ++i) ranks += occupancy(cells[i]);
    first[begin / kRowsPerTask] = ranks;
  });
  int64_t next = 0;
  for (int64_t& ranks : first) next += std::exchange(ranks, next);
  uint32_t* const word_rank = bitmap.word_rank.data();
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t rank = first[begin / kRowsPerTask];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t ranks = occupancy(cells[i]);
      if (ranks == 0) continue;
      word_rank[cells[i] / kCellsPerWord] = static_cast<uint32_t>(rank);
      rank += ranks;
    }
  });
}

class BitmapGrid final : public GridCpu {
 public:
  BitmapGrid(const CellOrder& order, Bitmap bitmap, int64_t bytes)
      : order_(order), bitmap_(std::move(bitmap)), bytes_(bytes) {}

  absl::Status Fill(const CoordinateSet& inputs, const ExecutionContext& context) {
    VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfRows(order_, inputs, context));
    const CellTermsCpu::Shifted cell_of(terms, Int3{});
    const Coordinate* rows = inputs.rows().data();
    const int64_t size = inputs.size();
    VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> cells, AllocateArray<int64_t>(size, context));
    ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) cells.data()[row] = cell_of(rows[row]);
    });
    SetBits(cells.data(), size, bitmap_, context);
    RankWords(cells.data(), size, bitmap_, context);
    ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        bitmap_.row_of_rank.data()[bitmap_.RankOf(cells.data()[row])] = static_cast<int32_t>(row);
      }
    });
    return absl::OkStatus();
  }

  int64_t bytes() const override { return bytes_; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!outputs.planar());
    VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfProblem(order_, problem, context));
    const Coordinate* rows = problem.outputs.rows().data();
    const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const CellTermsCpu::Shifted cell_of(terms, problem.geometry.InputOffset(k));
      return Probe(cell_of, rows, begin, end, in, out);
    };
    return CollectPairs(problem, symmetric, probe, context);
  }

 private:
  // Two loops without a branch to mispredict: the first finds which rows hit and reads nothing but
  // the words, the second turns the few hits into input rows.
  int64_t Probe(const CellTermsCpu::Shifted& cell_of, const Coordinate* rows, int64_t begin,
                int64_t end, int32_t* in, int32_t* out) const {
    const uint64_t* const words = bitmap_.words.data();
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t cell = cell_of(rows[row]);
      if (cell < 0) continue;  // as good as never
      out[count] = static_cast<int32_t>(row);
      count += (words[cell / kCellsPerWord] & BitOf(cell)) != 0;
    }
    const int32_t* row_of_rank = bitmap_.row_of_rank.data();
    for (int64_t i = 0; i < count; ++i) in[i] = row_of_rank[bitmap_.RankOf(cell_of(rows[out[i]]))];
    return count;
  }

  CellOrder order_;
  Bitmap bitmap_;
  int64_t bytes_;  // of the pages that voxels lie in, and of row_of_rank
};

}  // namespace

absl::StatusOr<GridCpuPtr> BuildBitmapGridCpu(const CoordinateSet& inputs, int64_t limit_mib,
                                              const ExecutionContext& context) {
  const CellOrder order = CellOrder::Bitmap(inputs);
  const int64_t rows_bytes = inputs.size() * static_cast<int64_t>(sizeof(int32_t));
  VOXCONV_ASSIGN_OR_RETURN(GridPages pages, ReserveCells(order, inputs,
                                                         {{sizeof(uint64_t), kCellsPerWord},
                                                          {sizeof(uint32_t), kCellsPerWord}},
                                                         rows_bytes, limit_mib, "bitmap", context));
  const int64_t num_words = order.num_cells() / kCellsPerWord;
  Bitmap bitmap;
  bitmap.words = Array<uint64_t>(std::move(pages.arrays[0]), num_words);
  bitmap.word_rank = Array<uint32_t>(std::move(pages.arrays[1]), num_words);
  VOXCONV_ASSIGN_OR_RETURN(bitmap.row_of_rank, AllocateArray<int32_t>(inputs.size(), context));
  auto grid = std::make_unique<BitmapGrid>(order, std::move(bitmap), pages.bytes + rows_bytes);
  VOXCONV_RETURN_IF_ERROR(grid->Fill(inputs, context));
  return grid;
}

}  // namespace voxconv
