// SPDX-License-Identifier: Apache-2.0
// SpConv 1.x's rule generation (mapping/grid/rules_cuda.cu) on the CPU.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/mapping/grid/cell_order_cpu.h"
#include "voxconv/mapping/grid/grid_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 4096;

class RulesGrid final : public GridCpu {
 public:
  explicit RulesGrid(int64_t limit_mib) : limit_mib_(limit_mib) {}

  int64_t bytes() const override { return 0; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows&, bool,
                                  const ExecutionContext& context) const override {
    const CoordinateSet &inputs = problem.inputs, &outputs = problem.outputs;
    const CellOrder order = CellOrder::Dense(outputs);
    VOXCONV_ASSIGN_OR_RETURN(GridPages pages, ReserveCells(order, outputs, {{sizeof(int32_t), 1}},
                                                           0, limit_mib_, "rules", context));
    Array<int32_t> numbers(std::move(pages.arrays[0]), order.num_cells());  // row + 1
    int32_t* const number = numbers.data();
    const Coordinate* to = outputs.rows().data();
    {
      const StageScope stage(context, Stage::kIndexBuild);
      ParallelRanges(context, outputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          number[order.CellOf(to[row])] = static_cast<int32_t>(row + 1);
        }
      });
    }
    const int num_offsets = problem.geometry.num_offsets();
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                             AllocateArray<int32_t>(outputs.size() * num_offsets, context));
    int32_t* const rules = table.data();
    std::fill_n(rules, table.size(), -1);
    const auto offsets = problem.geometry.input_offsets();
    const Coordinate* from = inputs.rows().data();
    // A pair's place is its own, so that rows need not wait for each other.
    ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Coordinate p = from[row];
        for (int k = 0; k < num_offsets; ++k) {
          const Int3& d = offsets[k];
          const int64_t cell = order.CellOf({p.b, p.x - d.x, p.y - d.y, p.z - d.z});
          const int64_t output = cell < 0 ? -1 : int64_t{number[cell]} - 1;
          if (output >= 0) rules[output * num_offsets + k] = static_cast<int32_t>(row);
        }
      }
    });
    if (Counters* counters = context.counters()) {
      counters->queries += inputs.size() * num_offsets;
    }
    KernelMap map(inputs.size(), outputs.size(), num_offsets, NeighbourTable{std::move(table), {}});
    map.set_identity_offset(problem.geometry.center());
    map.set_symmetric(problem.geometry.symmetric());
    return context.backend->map_ops().To(MapForm::kPairs, map, context);
  }

 private:
  int64_t limit_mib_;
};

}  // namespace

GridCpuPtr MakeRulesGridCpu(int64_t limit_mib) { return std::make_unique<RulesGrid>(limit_mib); }

}  // namespace voxconv
