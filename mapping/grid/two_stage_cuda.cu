// SPDX-License-Identifier: Apache-2.0
// Luo and Lai's operators. Each makes the location table that it needs: over its outputs if it is
// strided, over its inputs otherwise (Sections III-C to III-E). The offset table of a strided layer
// is made in two stages (Section III-D). The first table has two columns: for each input, the
// output that it goes to and its offset in the kernel. The second stage writes these to the offset
// table.
//
// In the paper an input goes to one output. Kernels that are larger than the stride give it
// several, so that an input has several rows of the first table here.
#include <utility>

#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/grid/cell_order.h"
#include "voxconv/mapping/grid/grid_cuda.h"
#include "voxconv/mapping/grid/strided_reach.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    LocationKernel(const Rows outputs, int64_t size, CellOrder order, int32_t* cells) {
  const int64_t row = GlobalThread();
  if (row < size) cells[order.CellOf(LoadRow(outputs, row))] = static_cast<int32_t>(row);
}

// A row of the first table.
struct Entry {
  int32_t output;  // -1: none
  int32_t offset;  // k
};

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    FirstKernel(const Rows inputs, int64_t size, StridedReach reach, CellOrder order,
                const int32_t* cells, Entry* first) {
  const int64_t row = GlobalThread();
  if (row >= size) return;
  Entry* to = first + row * reach.max_outputs();
  Entry* const end = to + reach.max_outputs();
  reach.Each(LoadRow(inputs, row), [&](const Coordinate& q, int k) {
    const int64_t cell = order.CellOf(q);
    const int32_t output = cell < 0 ? -1 : __ldg(cells + cell);
    if (output >= 0) *to++ = {output, k};
  });
  while (to < end) *to++ = {-1, 0};
}

struct OffsetTable {
  int32_t* rows;    // [N_out, num_offsets]
  uint32_t* masks;  // [N_out, words]
  int num_offsets, words;
};

__global__ void __launch_bounds__(kThreads)
    SecondKernel(const Entry* first, int64_t size, int64_t entries_per_input, OffsetTable table) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const Entry entry = first[i];
  if (entry.output < 0) return;
  const int64_t output = entry.output;
  table.rows[output * table.num_offsets + entry.offset] =
      static_cast<int32_t>(i / entries_per_input);
  atomicOr(table.masks + output * table.words + entry.offset / 32, 1u << entry.offset % 32);
}

class TwoStageGrid final : public GridCuda {
 public:
  TwoStageGrid(CoordinateRows inputs, int64_t limit_mib, bool scalar)
      : inputs_(std::move(inputs)), limit_mib_(limit_mib), scalar_(scalar) {}

  int64_t bytes() const override { return 0; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    if (problem.geometry.kind() == ConvKind::kStrided)
      return QueryStrided(problem, outputs, context);
    GridCudaPtr grid;
    {
      const StageScope stage(context, Stage::kIndexBuild);
      VOXCONV_ASSIGN_OR_RETURN(grid, BuildDenseGridCuda(inputs_, limit_mib_, scalar_, context));
    }
    return grid->Query(problem, outputs, symmetric, context);
  }

 private:
  absl::StatusOr<Array<int32_t>> Locate(const CellOrder& order, const CoordinateRows& outputs,
                                        const ExecutionContext& context) const {
    const StageScope stage(context, Stage::kIndexBuild);
    VOXCONV_RETURN_IF_ERROR(order.CheckLimit(sizeof(int32_t), 1, 0, limit_mib_, "two_stage"));
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> cells,
                             AllocateArray<int32_t>(order.num_cells(), context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(cells.data(), 0xff, cells.bytes(), *context.stream));
    const auto locate = [&](auto rows) -> absl::Status {
      VOXCONV_LAUNCH(LocationKernel<decltype(rows)>, GridFor(outputs.size(), kThreads), kThreads, 0,
                     context, rows, outputs.size(), order, cells.data());
      return absl::OkStatus();
    };
    VOXCONV_RETURN_IF_ERROR(VisitRows(outputs, scalar_, locate));
    return cells;
  }

  absl::StatusOr<KernelMap> QueryStrided(const MapProblem& problem, const CoordinateRows& outputs,
                                         const ExecutionContext& context) const {
    const CellOrder order = CellOrder::Dense(problem.outputs);
    VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> cells, Locate(order, outputs, context));
    const StridedReach reach(problem.geometry);
    VOXCONV_ASSIGN_OR_RETURN(Array<Entry> first,
                             AllocateArray<Entry>(inputs_.size() * reach.max_outputs(), context));
    const auto write_first = [&](auto rows) -> absl::Status {
      VOXCONV_LAUNCH(FirstKernel<decltype(rows)>, GridFor(inputs_.size(), kThreads), kThreads, 0,
                     context, rows, inputs_.size(), reach, order, cells.data(), first.data());
      return absl::OkStatus();
    };
    VOXCONV_RETURN_IF_ERROR(VisitRows(inputs_, scalar_, write_first));

    VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(arrays.table.data(), 0xff,
                                                       arrays.table.bytes(), *context.stream));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(arrays.masks.data(), 0, arrays.masks.bytes(), *context.stream));
    const int num_offsets = problem.geometry.num_offsets();
    VOXCONV_LAUNCH(SecondKernel, GridFor(first.size(), kThreads), kThreads, 0, context,
                   first.data(), first.size(), reach.max_outputs(),
                   OffsetTable{arrays.table.data(), arrays.masks.data(), num_offsets,
                               static_cast<int>(CeilDiv(num_offsets, 32))});
    if (Counters* counters = context.counters()) counters->queries += first.size();
    return MakeNeighbourMap(problem, std::move(arrays));
  }

  CoordinateRows inputs_;
  int64_t limit_mib_;
  bool scalar_;
};

}  // namespace

GridCudaPtr MakeTwoStageGridCuda(const CoordinateRows& inputs, int64_t limit_mib, bool scalar) {
  return std::make_unique<TwoStageGrid>(inputs, limit_mib, scalar);
}

}  // namespace voxconv
