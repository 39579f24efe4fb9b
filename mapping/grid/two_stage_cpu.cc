// SPDX-License-Identifier: Apache-2.0
// Luo and Lai's operators (mapping/grid/two_stage_cuda.cu) on the CPU.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/mapping/grid/cell_order_cpu.h"
#include "voxconv/mapping/grid/grid_cpu.h"
#include "voxconv/mapping/grid/strided_reach.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 4096;

// A row of the first table.
struct Entry {
  int32_t output;  // -1: none
  int32_t offset;  // k
};

class TwoStageGrid final : public GridCpu {
 public:
  TwoStageGrid(CoordinateRows inputs, int64_t limit_mib)
      : inputs_(std::move(inputs)), limit_mib_(limit_mib) {}

  int64_t bytes() const override { return 0; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    if (problem.geometry.kind() == ConvKind::kStrided)
      return QueryStrided(problem, outputs, context);
    GridCpuPtr grid;
    {
      const StageScope stage(context, Stage::kIndexBuild);
      VOXCONV_ASSIGN_OR_RETURN(grid, BuildDenseGridCpu(inputs_, limit_mib_, context));
    }
    return grid->Query(problem, outputs, symmetric, context);
  }

 private:
  // The row + 1 of each cell's output.
  absl::StatusOr<Array<int32_t>> Locate(const CellOrder& order, const CoordinateRows& outputs,
                                        const ExecutionContext& context) const {
    const StageScope stage(context, Stage::kIndexBuild);
    VOXCONV_ASSIGN_OR_RETURN(
        GridPages pages, ReserveCells(order, outputs.set(), {{sizeof(int32_t), 1}}, 0, limit_mib_,
                                      "two_stage", context));
    Array<int32_t> cells(std::move(pages.arrays[0]), order.num_cells());
    outputs.Visit([&](const auto rows) {
      ParallelRanges(context, outputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          cells.data()[order.CellOf(rows[row])] = static_cast<int32_t>(row + 1);
        }
      });
    });
    return cells;
  }

  void WriteFirst(const StridedReach& reach, const CellOrder& order, const int32_t* cells,
                  Entry* first, const ExecutionContext& context) const {
    const int64_t width = reach.max_outputs();
    inputs_.Visit([&](const auto rows) {
      ParallelRanges(context, inputs_.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          Entry* to = first + row * width;
          reach.Each(rows[row], [&](const Coordinate& q, int k) {
            const int64_t cell = order.CellOf(q);
            const int32_t output = cell < 0 ? -1 : cells[cell] - 1;
            if (output >= 0) *to++ = {output, k};
          });
          std::fill(to, first + (row + 1) * width, Entry{-1, 0});
        }
      });
    });
  }

  absl::StatusOr<KernelMap> QueryStrided(const MapProblem& problem, const CoordinateRows& outputs,
                                         const ExecutionContext& context) const {
    const CellOrder order = CellOrder::Dense(problem.outputs);
    VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> cells, Locate(order, outputs, context));
    const StridedReach reach(problem.geometry);
    const int64_t width = reach.max_outputs();
    VOXCONV_ASSIGN_OR_RETURN(Array<Entry> first,
                             AllocateArray<Entry>(inputs_.size() * width, context));
    WriteFirst(reach, order, cells.data(), first.data(), context);

    const int num_offsets = problem.geometry.num_offsets();
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                             AllocateTable(outputs.size(), num_offsets, context));
    std::fill_n(table.data(), table.size(), -1);
    // An entry's place in the offset table is its own, so that inputs need not wait for each other.
    ParallelRanges(context, inputs_.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * width; i < end * width; ++i) {
        const Entry entry = first.data()[i];
        if (entry.output < 0) continue;
        table.data()[int64_t{entry.output} * num_offsets + entry.offset] =
            static_cast<int32_t>(i / width);
      }
    });
    if (Counters* counters = context.counters()) counters->queries += first.size();
    KernelMap map(problem.inputs.size(), problem.outputs.size(), num_offsets,
                  NeighbourTable{std::move(table), {}});
    map.set_identity_offset(problem.geometry.center());
    map.set_symmetric(problem.geometry.symmetric());
    return context.backend->map_ops().To(MapForm::kPairs, map, context);
  }

  CoordinateRows inputs_;
  int64_t limit_mib_;
};

}  // namespace

GridCpuPtr MakeTwoStageGridCpu(const CoordinateRows& inputs, int64_t limit_mib) {
  return std::make_unique<TwoStageGrid>(inputs, limit_mib);
}

}  // namespace voxconv
