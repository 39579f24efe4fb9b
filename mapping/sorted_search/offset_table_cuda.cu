// SPDX-License-Identifier: Apache-2.0
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/mapping/sorted_search/offset_table_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kTileRows = 4 * kThreads;  // of a block

// counts[k * tiles + tile]: the pairs of offset k in the tile. Grid: (tiles, K).
__global__ void __launch_bounds__(kThreads)
    CountKernel(const int32_t* table, int64_t rows, int64_t tiles, int32_t* counts) {
  using Reduce = cub::BlockReduce<int32_t, kThreads>;
  __shared__ typename Reduce::TempStorage temp;
  const int32_t* const row_of = table + blockIdx.y * rows;
  const int64_t end = min((blockIdx.x + 1) * kTileRows, rows);
  int32_t count = 0;
  for (int64_t q = blockIdx.x * kTileRows + threadIdx.x; q < end; q += kThreads) {
    count += row_of[q] >= 0;
  }
  count = Reduce(temp).Sum(count);
  if (threadIdx.x == 0) counts[blockIdx.y * tiles + blockIdx.x] = count;
}

// offset_ptr[k] = begin[k * tiles], for k = 0 .. K.
__global__ void __launch_bounds__(kThreads)
    PointerKernel(const int64_t* begin, int64_t tiles, int64_t size, int64_t* offset_ptr) {
  const int64_t k = GlobalThread();
  if (k < size) offset_ptr[k] = begin[k * tiles];
}

// begin[k * tiles + tile]: the place of the tile's first pair of offset k. Grid: (tiles, K).
__global__ void __launch_bounds__(kThreads)
    WriteKernel(const int32_t* table, int64_t rows, int64_t tiles, const int64_t* begin,
                int32_t* in, int32_t* out) {
  using Scan = cub::BlockScan<int32_t, kThreads>;
  __shared__ typename Scan::TempStorage temp;
  const int32_t* const row_of = table + blockIdx.y * rows;
  const int64_t end = min((blockIdx.x + 1) * kTileRows, rows);
  int64_t base = begin[blockIdx.y * tiles + blockIdx.x];
  for (int64_t first = blockIdx.x * kTileRows; first < end; first += kThreads) {
    const int64_t q = first + threadIdx.x;
    const int32_t p = q < end ? row_of[q] : -1;
    int32_t before = 0, total = 0;
    Scan(temp).ExclusiveSum(p >= 0 ? 1 : 0, before, total);
    if (p >= 0) {
      in[base + before] = p;
      out[base + before] = static_cast<int32_t>(q);
    }
    base += total;
    __syncthreads();  // the next scan uses the same memory
  }
}

}  // namespace

absl::StatusOr<KernelMap> PairsOfOffsetTable(const MapProblem& problem, const Array<int32_t>& table,
                                             const ExecutionContext& context) {
  const StageScope stage(context, Stage::kConvert);
  const int64_t rows = problem.outputs.size(), num_offsets = problem.geometry.num_offsets();
  const int64_t tiles = CeilDiv(rows, kTileRows);
  // One more count, which is 0: its sum is the number of all pairs.
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> counts,
                           AllocateArray<int32_t>(num_offsets * tiles + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> begin, AllocateArray<int64_t>(counts.size(), context));
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(counts.data() + num_offsets * tiles, 0,
                                                     sizeof(int32_t), *context.stream));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(num_offsets));
  VOXCONV_LAUNCH(CountKernel, grid, kThreads, 0, context, table.data(), rows, tiles, counts.data());
  VOXCONV_RETURN_IF_ERROR(ExclusiveSum(counts.data(), begin.data(), counts.size(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> offset_ptr,
                           AllocateArray<int64_t>(num_offsets + 1, context));
  VOXCONV_LAUNCH(PointerKernel, GridFor(offset_ptr.size(), kThreads), kThreads, 0, context,
                 begin.data(), tiles, offset_ptr.size(), offset_ptr.data());
  VOXCONV_ASSIGN_OR_RETURN(std::vector<int64_t> host_ptr, CopyToHost(offset_ptr, context));

  VOXCONV_ASSIGN_OR_RETURN(PairBuffers pairs, PairBuffers::Allocate(host_ptr.back(), context));
  VOXCONV_LAUNCH(WriteKernel, grid, kThreads, 0, context, table.data(), rows, tiles, begin.data(),
                 pairs.in.data(), pairs.out.data());
  KernelMap map(problem.inputs.size(), rows, std::move(host_ptr), PairList(std::move(pairs)));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

}  // namespace voxconv
