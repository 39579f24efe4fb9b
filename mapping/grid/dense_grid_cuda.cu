// SPDX-License-Identifier: Apache-2.0
// TorchSparse's collision-free grid (Section 4.4): the row of every cell, or -1.
#include <utility>

#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/grid/cell_order.h"
#include "voxconv/mapping/grid/grid_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

struct Lookup {
  CellOrder order;
  const int32_t* cells;

  __device__ int32_t operator()(const Coordinate& position, uint64_t) const {
    const int64_t cell = order.CellOf(position);
    return cell < 0 ? -1 : __ldg(cells + cell);
  }
};

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    FillKernel(const Rows inputs, int64_t size, CellOrder order, int32_t* cells) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < size) cells[order.CellOf(LoadRow(inputs, row))] = static_cast<int32_t>(row);
}

class DenseGrid final : public GridCuda {
 public:
  DenseGrid(const CellOrder& order, Array<int32_t> cells, bool scalar)
      : order_(order), cells_(std::move(cells)), scalar_(scalar) {}

  int64_t bytes() const override { return cells_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    return VisitRows(outputs, scalar_, [&](const auto rows) {
      return QueryNeighbours(Lookup{order_, cells_.data()}, rows, problem, symmetric, context);
    });
  }

 private:
  CellOrder order_;
  Array<int32_t> cells_;
  bool scalar_;
};

}  // namespace

absl::StatusOr<GridCudaPtr> BuildDenseGridCuda(const CoordinateRows& inputs, int64_t limit_mib,
                                               bool scalar, const ExecutionContext& context) {
  const CellOrder order = CellOrder::Dense(inputs.set());
  VOXCONV_RETURN_IF_ERROR(order.CheckLimit(sizeof(int32_t), 1, 0, limit_mib, "dense"));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> cells,
                           AllocateArray<int32_t>(order.num_cells(), context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(cells.data(), 0xff, cells.bytes(), *context.stream));
  const auto fill = [&](auto rows) -> absl::Status {
    VOXCONV_LAUNCH(FillKernel<decltype(rows)>, GridFor(inputs.size(), kThreads), kThreads, 0,
                   context, rows, inputs.size(), order, cells.data());
    return absl::OkStatus();
  };
  VOXCONV_RETURN_IF_ERROR(VisitRows(inputs, scalar, fill));
  return std::make_unique<DenseGrid>(order, std::move(cells), scalar);
}

}  // namespace voxconv
