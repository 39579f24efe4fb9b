// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/hash2col/hash2col.h"
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

absl::Status Assemble(const int32_t* neighbours, int64_t cells, const ConstTensorView& input,
                      void* columns, const ExecutionContext& context) {
  const StageScope stage(context, Stage::kGather);
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

// Deterministic: a sum is that of one matrix product.
class Hash2colCuda final : public Hash2col {
 public:
  explicit Hash2colCuda(Options options) : Hash2col(std::move(options), kDefaultMib) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = UniformTypes(kHash2colName, shape), .isolates_weights = false};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap& map,
                                                       const ConvShape& shape,
                                                       const ExecutionContext&) const override {
    return PlanBlocks(map.map(), shape);  // each launch counts itself
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
    const KernelMap& map = prepared.map();
    const int32_t* table = map.table().table.data();
    const ConvShape& shape = plan.shape();
    const int64_t out_row_bytes = shape.c_out * SizeOf(shape.types.output);
    char* columns = workspace.Get<char>(plan.columns_slot());
    for (int64_t first = 0; first < map.num_outputs(); first += plan.block_rows()) {
      const int64_t rows = std::min(plan.block_rows(), map.num_outputs() - first);
      VOXCONV_RETURN_IF_ERROR(Assemble(table + first * map.num_offsets(), rows * map.num_offsets(),
                                       args.input, columns, context));
      const StageScope stage(context, Stage::kGemm);  // Equation 3
      const GemmArgs gemm{.m = rows,
                          .n = shape.c_out,
                          .k = plan.column_size(),
                          .a = columns,
                          .b = args.weights.data,
                          .c = static_cast<char*>(args.output.data) + first * out_row_bytes,
                          .precision = shape.types.precision,
                          .c_dtype = shape.types.output};
      VOXCONV_RETURN_IF_ERROR(AsCuda(context).gemm().Run(gemm, context));
    }
    return absl::OkStatus();
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
