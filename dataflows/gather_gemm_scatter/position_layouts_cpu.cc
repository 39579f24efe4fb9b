// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "voxconv/backends/cpu/map_table.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"

namespace voxconv {
namespace {

absl::StatusOr<DenseTableArrays> MakeDenseTables(const KernelMap& map,
                                                 const ExecutionContext& context) {
  const PairList& pairs = map.pairs();
  const int num_offsets = map.num_offsets();
  DenseTableArrays result;
  VOXCONV_ASSIGN_OR_RETURN(result.in_table, EmptyTable(map.num_inputs(), num_offsets, context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_table, EmptyTable(map.num_outputs(), num_offsets, context));
  // Each (row, offset) entry is written at most once, so offsets may run concurrently.
  ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      const int32_t position = static_cast<int32_t>(i);
      result.in_table.data()[int64_t{pairs.in.data()[i]} * num_offsets + k] = position;
      result.out_table.data()[int64_t{pairs.out.data()[i]} * num_offsets + k] = position;
    }
  });
  return result;
}

// One side of the coded CSR: a counting sort of the pairs by `row_of`, offsets ascending in a row.
absl::Status EncodeRows(const KernelMap& map, const int32_t* row_of, int64_t rows,
                        Array<int32_t>& ptr, Array<uint32_t>& code,
                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(ptr, AllocateArray<int32_t>(rows + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(code, AllocateArray<uint32_t>(map.num_pairs(), context));
  std::fill(ptr.data(), ptr.data() + rows + 1, 0);
  for (int64_t i = 0; i < map.num_pairs(); ++i) ++ptr.data()[row_of[i] + 1];
  std::partial_sum(ptr.data(), ptr.data() + rows + 1, ptr.data());
  // Filling moves each row's begin to its end; the shift below moves all back by one row.
  const uint32_t num_offsets = map.num_offsets();
  for (uint32_t k = 0; k < num_offsets; ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      code.data()[ptr.data()[row_of[i]]++] = k + num_offsets * static_cast<uint32_t>(i);
    }
  }
  std::copy_backward(ptr.data(), ptr.data() + rows, ptr.data() + rows + 1);
  ptr.data()[0] = 0;
  return absl::OkStatus();
}

absl::StatusOr<CodedCsrArrays> MakeCodedCsr(const KernelMap& map, const ExecutionContext& context) {
  const PairList& pairs = map.pairs();
  CodedCsrArrays result;
  VOXCONV_RETURN_IF_ERROR(
      EncodeRows(map, pairs.in.data(), map.num_inputs(), result.in_ptr, result.in_code, context));
  VOXCONV_RETURN_IF_ERROR(EncodeRows(map, pairs.out.data(), map.num_outputs(), result.out_ptr,
                                     result.out_code, context));
  return result;
}

}  // namespace

PositionLayoutMaker CpuPositionLayouts() { return {&MakeDenseTables, &MakeCodedCsr}; }

}  // namespace voxconv
