// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cub/device/device_scan.cuh>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/map_table.h"
#include "voxconv/backends/cuda/row_masks.h"
#include "voxconv/backends/cuda/stream_fork.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// counts[row]: bits of the row's mask; counts[rows] = 0.
__global__ void CountRowBits(const uint32_t* masks, int64_t rows, int words, int32_t* counts) {
  const int64_t row = GlobalThread();
  if (row > rows) return;
  int32_t count = 0;
  for (int w = 0; w < words && row < rows; ++w) count += __popc(masks[row * words + w]);
  counts[row] = count;
}

__global__ void WriteCodes(const int32_t* positions, const uint32_t* masks, int64_t rows, int words,
                           uint32_t num_offsets, const int32_t* ptr, uint32_t* codes) {
  const int64_t row = GlobalThread();
  if (row >= rows) return;
  uint32_t* to = codes + ptr[row];
  for (int w = 0; w < words; ++w) {
    for (uint32_t mask = masks[row * words + w]; mask != 0; mask &= mask - 1) {
      const uint32_t k = 32 * w + __ffs(mask) - 1;
      *to++ = k + num_offsets * static_cast<uint32_t>(positions[row * num_offsets + k]);
    }
  }
}

// One side of the coded CSR, by way of the pairs' positions in a table. They fit int32
// (MakePositionLayout). Writes ptr [rows + 1] and codes [pairs], which the caller allocated.
absl::Status EncodeRows(const DevicePairs& pairs, const int32_t* row, int64_t rows,
                        Array<int32_t>& ptr, Array<uint32_t>& codes,
                        const ExecutionContext& context) {
  const int num_offsets = pairs.view().num_offsets;
  VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> positions,
                           TableOfPairs(pairs, row, nullptr, rows, context));
  const int words = static_cast<int>(CeilDiv(num_offsets, 32));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks, AllocateArray<uint32_t>(rows * words, context));
  VOXCONV_RETURN_IF_ERROR(FillMasks(positions.data(), rows, num_offsets, {0, num_offsets}, words,
                                    masks.data(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> counts, AllocateArray<int32_t>(rows + 1, context));
  VOXCONV_LAUNCH(CountRowBits, GridFor(rows + 1, kBlock), kBlock, 0, context, masks.data(), rows,
                 words, counts.data());
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(temp, bytes, counts.data(), ptr.data(), rows + 1,
                                         CudaStreamOf(context));
  }));
  VOXCONV_LAUNCH(WriteCodes, GridFor(rows, kBlock), kBlock, 0, context, positions.data(),
                 masks.data(), rows, words, static_cast<uint32_t>(num_offsets), ptr.data(),
                 codes.data());
  return absl::OkStatus();
}

absl::StatusOr<DenseTableArrays> MakeDenseTables(const KernelMap& map,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const DevicePairs pairs, DevicePairs::Create(map, context));
  DenseTableArrays result;
  VOXCONV_ASSIGN_OR_RETURN(
      result.in_table, TableOfPairs(pairs, pairs.view().in, nullptr, map.num_inputs(), context));
  VOXCONV_ASSIGN_OR_RETURN(
      result.out_table, TableOfPairs(pairs, pairs.view().out, nullptr, map.num_outputs(), context));
  return result;
}

absl::StatusOr<CodedCsrArrays> MakeCodedCsr(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const DevicePairs pairs, DevicePairs::Create(map, context));
  CodedCsrArrays result;
  // What outlives the fork belongs to the context's own stream.
  const int64_t size = pairs.view().size;
  VOXCONV_ASSIGN_OR_RETURN(result.in_ptr, AllocateArray<int32_t>(map.num_inputs() + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(result.in_code, AllocateArray<uint32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_ptr, AllocateArray<int32_t>(map.num_outputs() + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_code, AllocateArray<uint32_t>(size, context));
  // PCEngine's pipeline (Appendix C, Figure 15): both sides at once, on two streams.
  StreamFork fork(context);
  VOXCONV_RETURN_IF_ERROR(fork.Open(2));
  VOXCONV_RETURN_IF_ERROR(EncodeRows(pairs, pairs.view().in, map.num_inputs(), result.in_ptr,
                                     result.in_code, fork.branch(0)));
  VOXCONV_RETURN_IF_ERROR(EncodeRows(pairs, pairs.view().out, map.num_outputs(), result.out_ptr,
                                     result.out_code, fork.branch(1)));
  VOXCONV_RETURN_IF_ERROR(fork.Join());
  return result;
}

}  // namespace

PositionLayoutMaker CudaPositionLayouts() { return {&MakeDenseTables, &MakeCodedCsr}; }

}  // namespace voxconv
