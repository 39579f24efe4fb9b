// SPDX-License-Identifier: Apache-2.0
// One bit a cell. The row of an occupied cell is found by its rank: the rank of its word's first
// cell plus the occupied cells before it in the word. A permutation leads from rank to row, so
// words may be ranked in any order: in that in which blocks get to them.
#include <cub/block/block_scan.cuh>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/grid/cell_order.h"
#include "voxconv/mapping/grid/grid_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kCellsPerWord = 64;

__device__ unsigned long long BitOf(int64_t cell) { return 1ull << (cell % kCellsPerWord); }

struct Bitmap {
  CellOrder order;
  unsigned long long* words;  // of 64 cells
  uint32_t* word_rank;        // meaningful where the word is not 0
  int32_t* row_of_rank;
};

struct Lookup {
  Bitmap bitmap;

  __device__ int32_t operator()(const Coordinate& position, uint64_t) const {
    const int64_t cell = bitmap.order.CellOf(position);
    if (cell < 0) return -1;
    const unsigned long long word = __ldg(bitmap.words + cell / kCellsPerWord);
    if ((word & BitOf(cell)) == 0) return -1;
    const uint32_t rank =
        __ldg(bitmap.word_rank + cell / kCellsPerWord) + __popcll(word & (BitOf(cell) - 1));
    return __ldg(bitmap.row_of_rank + rank);
  }
};

__global__ void __launch_bounds__(kThreads)
    SetBitsKernel(const Coordinate* inputs, int64_t size, Bitmap bitmap) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const int64_t cell = bitmap.order.CellOf(inputs[row]);
  atomicOr(bitmap.words + cell / kCellsPerWord, BitOf(cell));
}

// The row that holds a word's lowest cell speaks for the word.
__global__ void __launch_bounds__(kThreads)
    RankWordsKernel(const Coordinate* inputs, int64_t size, Bitmap bitmap, uint32_t* num_ranked) {
  using Scan = cub::BlockScan<uint32_t, kThreads>;
  __shared__ typename Scan::TempStorage temp;
  __shared__ uint32_t first;
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  int64_t cell = 0;
  uint32_t occupancy = 0;
  if (row < size) {
    cell = bitmap.order.CellOf(inputs[row]);
    const unsigned long long word = bitmap.words[cell / kCellsPerWord];
    if ((word & (BitOf(cell) - 1)) == 0) occupancy = __popcll(word);
  }
  uint32_t rank = 0, total = 0;
  Scan(temp).ExclusiveSum(occupancy, rank, total);
  if (threadIdx.x == 0) first = atomicAdd(num_ranked, total);
  __syncthreads();
  if (occupancy > 0) bitmap.word_rank[cell / kCellsPerWord] = first + rank;
}

__global__ void __launch_bounds__(kThreads)
    FillRowsKernel(const Coordinate* inputs, int64_t size, Bitmap bitmap) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const int64_t cell = bitmap.order.CellOf(inputs[row]);
  const unsigned long long word = bitmap.words[cell / kCellsPerWord];
  const uint32_t rank = bitmap.word_rank[cell / kCellsPerWord] + __popcll(word & (BitOf(cell) - 1));
  bitmap.row_of_rank[rank] = static_cast<int32_t>(row);
}

class BitmapGrid final : public GridCuda {
 public:
  BitmapGrid(const CellOrder& order, Array<unsigned long long> words, Array<uint32_t> word_rank,
             Array<int32_t> row_of_rank)
      : order_(order),
        words_(std::move(words)),
        word_rank_(std::move(word_rank)),
        row_of_rank_(std::move(row_of_rank)) {}

  absl::Status Fill(const CoordinateSet& inputs, const ExecutionContext& context) {
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(words_.data(), 0, words_.bytes(), *context.stream));
    VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> num_ranked, AllocateArray<uint32_t>(1, context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(num_ranked.data(), 0, num_ranked.bytes(), *context.stream));
    const Bitmap bitmap{order_, words_.data(), word_rank_.data(), row_of_rank_.data()};
    const dim3 grid = GridFor(inputs.size(), kThreads);
    const Coordinate* rows = inputs.rows().data();
    VOXCONV_LAUNCH(SetBitsKernel, grid, kThreads, 0, context, rows, inputs.size(), bitmap);
    VOXCONV_LAUNCH(RankWordsKernel, grid, kThreads, 0, context, rows, inputs.size(), bitmap,
                   num_ranked.data());
    VOXCONV_LAUNCH(FillRowsKernel, grid, kThreads, 0, context, rows, inputs.size(), bitmap);
    return absl::OkStatus();
  }

  int64_t bytes() const override {
    return words_.bytes() + word_rank_.bytes() + row_of_rank_.bytes();
  }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!outputs.planar());
    // Kernels of a query write nothing of it.
    const Lookup lookup{{order_, const_cast<unsigned long long*>(words_.data()),
                         const_cast<uint32_t*>(word_rank_.data()),
                         const_cast<int32_t*>(row_of_rank_.data())}};
    return QueryNeighbours(lookup, problem, symmetric, context);
  }

 private:
  CellOrder order_;
  Array<unsigned long long> words_;
  Array<uint32_t> word_rank_;
  Array<int32_t> row_of_rank_;
};

}  // namespace

absl::StatusOr<GridCudaPtr> BuildBitmapGridCuda(const CoordinateSet& inputs, int64_t limit_mib,
                                                const ExecutionContext& context) {
  const CellOrder order = CellOrder::Bitmap(inputs);
  const int64_t rows_bytes = inputs.size() * static_cast<int64_t>(sizeof(int32_t));
  constexpr int64_t kWordBytes = sizeof(uint64_t) + sizeof(uint32_t);
  VOXCONV_RETURN_IF_ERROR(
      order.CheckLimit(kWordBytes, kCellsPerWord, rows_bytes, limit_mib, "bitmap"));
  const int64_t num_words = order.num_cells() / kCellsPerWord;
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> words,
                           AllocateArray<unsigned long long>(num_words, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> word_rank, AllocateArray<uint32_t>(num_words, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> row_of_rank,
                           AllocateArray<int32_t>(inputs.size(), context));
  auto grid = std::make_unique<BitmapGrid>(order, std::move(words), std::move(word_rank),
                                           std::move(row_of_rank));
  VOXCONV_RETURN_IF_ERROR(grid->Fill(inputs, context));
  return grid;
}

}  // namespace voxconv
