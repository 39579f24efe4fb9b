// SPDX-License-Identifier: Apache-2.0
// TorchSparse's collision-free grid (Section 4.4): the row of every cell.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/mapping/grid/cell_order_cpu.h"
#include "voxconv/mapping/grid/grid_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 65536;

class DenseGrid final : public GridCpu {
 public:
  DenseGrid(const CellOrder& order, Array<int32_t> cells, int64_t bytes)
      : order_(order), cells_(std::move(cells)), bytes_(bytes) {}

  absl::Status Fill(const CoordinateRows& inputs, const ExecutionContext& context) {
    VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfRows(order_, inputs.set(), context));
    const CellTermsCpu::Shifted cell_of(terms, Int3{});
    int32_t* const cells = cells_.data();
    inputs.Visit([&](const auto rows) {
      ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          cells[cell_of(rows[row])] = static_cast<int32_t>(row + 1);
        }
      });
    });
    return absl::OkStatus();
  }

  int64_t bytes() const override { return bytes_; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfProblem(order_, problem, context));
    return outputs.Visit([&](const auto rows) {
      const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
        const CellTermsCpu::Shifted cell_of(terms, problem.geometry.InputOffset(k));
        return Probe(cell_of, rows, begin, end, in, out);
      };
      return CollectPairs(problem, symmetric, probe, context);
    });
  }

 private:
  template <typename Rows>
  int64_t Probe(const CellTermsCpu::Shifted& cell_of, const Rows& rows, int64_t begin, int64_t end,
                int32_t* in, int32_t* out) const {
    const int32_t* const cells = cells_.data();
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t cell = cell_of(rows[row]);
      if (cell < 0) continue;  // as good as never
      const int32_t found = cells[cell] - 1;
      in[count] = found;
      out[count] = static_cast<int32_t>(row);
      count += found >= 0;
    }
    return count;
  }

  CellOrder order_;
  Array<int32_t> cells_;  // row + 1, so that untouched zero pages hold no row
  int64_t bytes_;         // of the pages that voxels lie in
};

}  // namespace

absl::StatusOr<GridCpuPtr> BuildDenseGridCpu(const CoordinateRows& inputs, int64_t limit_mib,
                                             const ExecutionContext& context) {
  const CellOrder order = CellOrder::Dense(inputs.set());
  VOXCONV_ASSIGN_OR_RETURN(
      GridPages pages,
      ReserveCells(order, inputs.set(), {{sizeof(int32_t), 1}}, 0, limit_mib, "dense", context));
  Array<int32_t> cells(std::move(pages.arrays[0]), order.num_cells());
  auto grid = std::make_unique<DenseGrid>(order, std::move(cells), pages.bytes);
  VOXCONV_RETURN_IF_ERROR(grid->Fill(inputs, context));
  return grid;
}

}  // namespace voxconv
