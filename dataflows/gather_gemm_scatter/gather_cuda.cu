// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/dataflows/gather_gemm_scatter/map_rows_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {
namespace {

// Minuet Algorithm 1: a thread reads its part of an input row once and writes it to the row's
// places in the buffer. blockIdx.y: which `offsets_per_slice` offsets of the range.
template <typename Rows, typename Vector, int kVectors>
__global__ void __launch_bounds__(kMoveBlock)
    GatherKernel(const Rows rows, const Vector* __restrict__ input, Vector* __restrict__ buffer,
                 const MoveShape shape, const __grid_constant__ WindowRange range,
                 int offsets_per_slice) {
  extern __shared__ __align__(16) char memory[];
  const int begin = static_cast<int>(blockIdx.y) * offsets_per_slice;
  const int end = begin + offsets_per_slice;
  if (offsets_per_slice == 1 && range.windows[begin].begin == range.windows[begin].end) return;
  RowPairs pairs(range, begin, end, memory);
  const int64_t first_row = int64_t{blockIdx.x} * blockDim.y;
  pairs.Find(rows, first_row, shape.rows);
  const int64_t row = first_row + threadIdx.y;
  if (row >= shape.rows || pairs.count() == 0) return;
  const Vector* from = input + row * shape.vectors;
  for (int64_t thread = threadIdx.x; thread < shape.threads; thread += blockDim.x) {
    for (int64_t v = thread; v < shape.vectors; v += kVectors * shape.threads) {
      Vector value[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = v + i * shape.threads;
        if (at < shape.vectors) value[i] = from[at];
      }
      for (int e = 0; e < pairs.count(); ++e) {
        Vector* to = buffer + pairs.buffer_row(e) * shape.vectors;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const int64_t at = v + i * shape.threads;
          if (at < shape.vectors) to[at] = value[i];
        }
      }
    }
  }
}

// Up to this many runs of padding or matrices are one launch's parameters.
constexpr int kMaxRuns = 128;

struct PaddingRuns {
  PaddingRun runs[kMaxRuns];
};

template <typename Vector>
__global__ void ClearPadding(const __grid_constant__ PaddingRuns padding, int64_t vectors_per_row,
                             Vector* buffer) {
  const PaddingRun run = padding.runs[blockIdx.y];
  Vector* to = buffer + run.base * vectors_per_row;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < run.rows * vectors_per_row;
       i += step) {
    to[i] = Vector{};
  }
}

struct MatrixList {
  int matrices[kMaxRuns];
};

template <typename Vector>
__global__ void CopyMatrices(const __grid_constant__ MatrixList list, int64_t vectors_per_matrix,
                             const Vector* __restrict__ from, Vector* __restrict__ to) {
  const Vector* source = from + list.matrices[blockIdx.y] * vectors_per_matrix;
  Vector* target = to + blockIdx.y * vectors_per_matrix;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors_per_matrix;
       i += step) {
    target[i] = source[i];
  }
}

// Blocks along x of a kernel that strides over `vectors`.
unsigned StridingBlocks(int64_t vectors) {
  return static_cast<unsigned>(std::min<int64_t>(CeilDiv(vectors, kMoveBlock), 1024));
}

}  // namespace

absl::Status GatherCuda(const DeviceRows& rows, const void* input, void* buffer,
                        const MoveShape& shape, const WindowRange& range, bool by_offset,
                        const ExecutionContext& context) {
  const int offsets_per_slice = by_offset ? 1 : range.count;
  const MoveLaunch launch =
      LaunchOf(shape, range.count, offsets_per_slice, by_offset ? range.count : 1);
  return std::visit(
      [&](const auto& layout) {
        return ForVectorBytes(shape.vector_bytes, [&](auto bytes) {
          return ForVectorsInFlight(shape, [&](auto vectors) -> absl::Status {
            using Vector = RawVector<bytes()>;
            auto* const kernel = &GatherKernel<std::decay_t<decltype(layout)>, Vector, vectors()>;
            VOXCONV_LAUNCH(kernel, launch.grid, launch.block, launch.shared_bytes, context, layout,
                           static_cast<const Vector*>(input), static_cast<Vector*>(buffer), shape,
                           range, offsets_per_slice);
            return absl::OkStatus();
          });
        });
      },
      rows);
}

absl::Status ClearPaddingCuda(absl::Span<const PaddingRun> runs, int64_t row_bytes, void* buffer,
                              const ExecutionContext& context) {
  const int width = VectorBytes(16, {static_cast<uint64_t>(row_bytes), AddressOf(buffer)});
  for (; !runs.empty(); runs.remove_prefix(std::min<size_t>(runs.size(), kMaxRuns))) {
    const absl::Span<const PaddingRun> now = runs.first(std::min<size_t>(runs.size(), kMaxRuns));
    PaddingRuns padding;
    std::copy(now.begin(), now.end(), padding.runs);
    int64_t most = 0;
    for (const PaddingRun& run : now) most = std::max(most, run.rows);
    VOXCONV_RETURN_IF_ERROR(ForVectorBytes(width, [&](auto bytes) -> absl::Status {
      using Vector = RawVector<bytes()>;
      const int64_t vectors = row_bytes / bytes();
      const dim3 grid(StridingBlocks(most * vectors), static_cast<unsigned>(now.size()));
      VOXCONV_LAUNCH(ClearPadding<Vector>, grid, kMoveBlock, 0, context, padding, vectors,
                     static_cast<Vector*>(buffer));
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status CopyMatricesCuda(absl::Span<const int> matrices, int64_t matrix_bytes,
                              const void* from, void* to, const ExecutionContext& context) {
  const int width =
      VectorBytes(16, {static_cast<uint64_t>(matrix_bytes), AddressOf(from), AddressOf(to)});
  for (int64_t done = 0; done < static_cast<int64_t>(matrices.size()); done += kMaxRuns) {
    const absl::Span<const int> now = matrices.subspan(done, kMaxRuns);
    MatrixList list{};
    std::copy(now.begin(), now.end(), list.matrices);
    VOXCONV_RETURN_IF_ERROR(ForVectorBytes(width, [&](auto bytes) -> absl::Status {
      using Vector = RawVector<bytes()>;
      const int64_t vectors = matrix_bytes / bytes();
      const dim3 grid(StridingBlocks(vectors), static_cast<unsigned>(now.size()));
      VOXCONV_LAUNCH(CopyMatrices<Vector>, grid, kMoveBlock, 0, context, list, vectors,
                     static_cast<const Vector*>(from), static_cast<Vector*>(to) + done * vectors);
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
