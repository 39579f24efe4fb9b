// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/dataflows/hash2col/col2hash_cuda.h"
#include "voxconv/dataflows/hash2col/hash2col.h"
#include "voxconv/dataflows/hash2col/pool_columns_cuda.h"
#include "voxconv/dataflows/hash2col/register.h"

namespace voxconv {
namespace {

// On an H200 products in blocks of 5,000 to 10,000 rows took 1.3 to 1.5 times as long as in one.
constexpr int64_t kDefaultMib = 1024;
constexpr int kBlock = 256;
// Independent loads that a thread keeps in flight.
constexpr int kCellsPerThread = 4;

// H-CNN Algorithm 1. A cell is one neighbour of one output: `vectors` consecutive vectors of the
// columns, which are the neighbour's features or zeros. threadIdx.x runs along a cell,
// threadIdx.y over cells.
template <typename Vector>
__global__ void __launch_bounds__(kBlock)
    AssembleColumns(const int32_t* __restrict__ neighbours, const Vector* __restrict__ features,
                    int64_t cells, int64_t vectors, Vector* __restrict__ columns) {
  const int64_t first =
      int64_t{blockIdx.x} * blockDim.y * kCellsPerThread + static_cast<int64_t>(threadIdx.y);
  int32_t row[kCellsPerThread];
#pragma unroll
  for (int i = 0; i < kCellsPerThread; ++i) {
    const int64_t cell = first + i * static_cast<int64_t>(blockDim.y);
    row[i] = cell < cells ? neighbours[cell] : -1;
  }
  for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
    Vector value[kCellsPerThread];
#pragma unroll
    for (int i = 0; i < kCellsPerThread; ++i) {
      value[i] = row[i] >= 0 ? features[row[i] * vectors + v] : Vector{};
    }
#pragma unroll
    for (int i = 0; i < kCellsPerThread; ++i) {
      const int64_t cell = first + i * static_cast<int64_t>(blockDim.y);
      if (cell < cells) columns[cell * vectors + v] = value[i];
    }
  }
}

// Deterministic: sums are those of matrix products, and of col2hash, which has a fixed order.
class Hash2colCuda final : public Hash2col {
 public:
  explicit Hash2colCuda(Options options) : Hash2col(std::move(options), kDefaultMib) {}

 protected:
  Capability DoCapability(Pass pass, const ConvShape& shape) const override {
    ConvShape stored = shape;
    // Gradients of weights may be stored in f32 beside 16-bit features.
    if (pass == Pass::kWeightGrad && stored.types.weights == DType::kF32) {
      stored.types.weights = stored.types.input;
    }
    return {.support = UniformTypes(kHash2colName, stored),
            .isolates_weights = pass != Pass::kForward};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass pass, const PreparedMap& map,
                                                       const ConvShape& shape,
                                                       const ExecutionContext&) const override {
    return PlanBlocks(pass, map.map(), shape);  // each launch counts itself
  }

  absl::Status FillColumns(const int32_t* neighbours, int64_t cells, const ConstTensorView& input,
                           void* columns, const ExecutionContext& context) const override {
    const int64_t row_bytes = input.channels * SizeOf(input.dtype);
    const int width = VectorBytes(
        16, {static_cast<uint64_t>(row_bytes), AddressOf(input.data), AddressOf(columns)});
    return ForVectorBytes(width, [&](auto bytes) -> absl::Status {
      using Vector = RawVector<bytes()>;
      const int64_t vectors = row_bytes / bytes();
      const unsigned along = static_cast<unsigned>(std::min<int64_t>(vectors, kBlock));
      const dim3 block(along, kBlock / along);
      VOXCONV_LAUNCH(AssembleColumns<Vector>,
                     GridFor(cells, static_cast<int>(block.y) * kCellsPerThread), block, 0, context,
                     neighbours, static_cast<const Vector*>(input.data), cells, vectors,
                     static_cast<Vector*>(columns));
      return absl::OkStatus();
    });
  }

  absl::Status Multiply(const Product& product, const ExecutionContext& context) const override {
    const GemmArgs gemm{.m = product.m,
                        .n = product.n,
                        .k = product.k,
                        .a = product.a,
                        .b = product.b,
                        .c = product.c,
                        .transpose_a = product.transpose_a,
                        .precision = product.precision,
                        .c_dtype = product.c_dtype,
                        .beta = product.accumulate ? 1.0f : 0.0f};
    return AsCuda(context).gemm().Run(gemm, context);
  }

  absl::Status UnrollWeights(const ConstTensorView& weights, int num_offsets, bool transposed,
                             void* unrolled, const ExecutionContext& context) const override {
    if (!transposed) return UnrollWeightsCuda(weights, num_offsets, unrolled, context);
    // All offsets are one matrix [K * C_in, C_out], whose transpose has their matrices side by
    // side.
    if (weights.rows == 0) return absl::OkStatus();
    const TensorView to{unrolled,      weights.channels, weights.rows,
                        weights.dtype, weights.device,   weights.rows};
    return context.backend->tensor_ops().TransposeWeights(weights, /*num_offsets=*/1,
                                                          /*reversed=*/false, to, context);
  }

  absl::Status SumColumns(const ColumnSum& sum, const ExecutionContext& context) const override {
    return SumColumnsCuda(sum, context);
  }

  absl::Status PoolColumns(const ColumnPool& pool, const ExecutionContext& context) const override {
    return PoolColumnsCuda(pool, context);
  }

  absl::Status SpreadColumns(const ColumnSpread& spread,
                             const ExecutionContext& context) const override {
    return SpreadColumnsCuda(spread, context);
  }
};

}  // namespace

absl::Status RegisterHash2colCuda(Registry& registry) {
  return registry.dataflows().Implement(
      kHash2colName, BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<Hash2colCuda>(std::move(options));
      });
}

}  // namespace voxconv
