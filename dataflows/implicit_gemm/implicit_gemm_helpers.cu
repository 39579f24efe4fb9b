// SPDX-License-Identifier: Apache-2.0
// What goes on around the kernels that multiply: padded copies, the sum of partial sums, counts.
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

template <typename Element>
__global__ void Pad(const Element* from, int64_t from_stride, Element* to, int64_t size,
                    int64_t rows, int64_t columns, int64_t padded_rows, int64_t padded_columns) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const int64_t column = i % padded_columns;
  const int64_t row = i / padded_columns % padded_rows;
  const int64_t group = i / padded_columns / padded_rows;
  const bool valid = row < rows && column < columns;
  to[i] = valid ? from[(group * rows + row) * from_stride + column] : Element{0};
}

template <typename Element>
__global__ void SumPartials(const __grid_constant__ ImplicitGemmArgs args) {
  const int64_t size = args.num_outputs * args.c_out;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float sum = args.partial[i];
  for (int part = 1; part < args.num_parts(); ++part) sum += args.partial[part * size + i];
  const int64_t row = i / args.c_out;
  const auto c = static_cast<int>(i % args.c_out);
  static_cast<Element*>(args.output)[row * args.ld_output + c] =
      Narrow<Element>(Finish<Element>(args, row, c, sum));
}

// Adds up, over groups of `skip_rows` positions, rows times offsets that any of them has.
__global__ void AddPaddedPairs(const __grid_constant__ ImplicitGemmArgs args, int skip_rows,
                               unsigned long long* total) {
  const int64_t groups = (args.num_outputs + skip_rows - 1) / skip_rows;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= groups * args.splits) return;
  const int split = static_cast<int>(i / groups);
  const int64_t first = i % groups * skip_rows;
  const int64_t last = min(first + skip_rows, args.num_outputs);
  int count = 0;
  for (int word = 0; word < SplitWords(args, split); ++word) {
    uint32_t any = 0;
    for (int64_t at = first; at < last; ++at) {
      any |= RowMask(args, split, OutputRow(args, split, at), at, word);
    }
    count += __popc(any);
  }
  atomicAdd(total, static_cast<unsigned long long>((last - first) * count));
}

}  // namespace

absl::Status LaunchPad(const void* from, int64_t from_stride, void* to, int64_t groups,
                       int64_t rows, int64_t columns, int64_t padded_rows, int64_t padded_columns,
                       int64_t element_bytes, const ExecutionContext& context) {
  const int64_t size = groups * padded_rows * padded_columns;
  if (element_bytes == 2) {
    VOXCONV_LAUNCH(Pad<uint16_t>, GridFor(size, kThreads), kThreads, 0, context,
                   static_cast<const uint16_t*>(from), from_stride, static_cast<uint16_t*>(to),
                   size, rows, columns, padded_rows, padded_columns);
  } else {
    VOXCONV_LAUNCH(Pad<uint32_t>, GridFor(size, kThreads), kThreads, 0, context,
                   static_cast<const uint32_t*>(from), from_stride, static_cast<uint32_t*>(to),
                   size, rows, columns, padded_rows, padded_columns);
  }
  return absl::OkStatus();
}

absl::Status LaunchSumPartials(const ImplicitGemmArgs& args, DType dtype,
                               const ExecutionContext& context) {
  const dim3 grid = GridFor(args.num_outputs * args.c_out, kThreads);
  return WithStoredType(dtype, [&]<typename T>() -> absl::Status {
    VOXCONV_LAUNCH(SumPartials<T>, grid, kThreads, 0, context, args);
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> CountPaddedPairs(const ImplicitGemmArgs& args, int skip_rows,
                                         const ExecutionContext& context) {
  ExecutionContext uncounted = context;
  uncounted.profile = nullptr;
  VOXCONV_ASSIGN_OR_RETURN(auto total, AllocateArray<unsigned long long>(1, uncounted));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(total.data(), 0, sizeof(unsigned long long), *context.stream));
  const int64_t groups = CeilDiv(args.num_outputs, skip_rows) * args.splits;
  VOXCONV_LAUNCH(AddPaddedPairs, GridFor(groups, kThreads), kThreads, 0, uncounted, args, skip_rows,
                 total.data());
  unsigned long long count = 0;
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(&count, MemorySpace::kHost, total.data(),
                                                MemorySpace::kDevice, sizeof(count),
                                                *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return static_cast<int64_t>(count);
}

}  // namespace voxconv
