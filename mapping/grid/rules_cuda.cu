// SPDX-License-Identifier: Apache-2.0
// The rule generation of SpConv 1.x, as Luo and Lai describe it (Algorithm 1): a dense grid holds
// the number of every output, and each input row writes itself to the rules of the outputs that it
// reaches, offset by offset. The rules are the neighbour table here, where each pair has a place of
// its own. The engine counts places by atomics instead, and its rules are in no order.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/grid/cell_order.h"
#include "voxconv/mapping/grid/grid_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxOffsets = 128;  // of one launch: a kernel's parameters

__global__ void __launch_bounds__(kThreads)
    NumberKernel(const Coordinate* outputs, int64_t size, CellOrder order, int32_t* cells) {
  const int64_t row = GlobalThread();
  if (row < size) cells[order.CellOf(outputs[row])] = static_cast<int32_t>(row);
}

struct Offsets {
  int first, count;
  Int3 offset[kMaxOffsets];
};

struct Rules {
  int32_t* table;   // [N_out, num_offsets]
  uint32_t* masks;  // [N_out, words]
  int num_offsets, words;
};

// A thread has an input row, blockIdx.y an offset.
__global__ void __launch_bounds__(kThreads)
    WriteKernel(const Coordinate* inputs, int64_t size, const __grid_constant__ Offsets offsets,
                CellOrder order, const int32_t* cells, Rules rules) {
  const int64_t row = GlobalThread();
  if (row >= size) return;
  const Coordinate p = inputs[row];
  const Int3 d = offsets.offset[blockIdx.y];
  // Both terms are below 2^18 in size. A cell of no output, or no cell, has no rule.
  const int64_t cell = order.CellOf({p.b, p.x - d.x, p.y - d.y, p.z - d.z});
  if (cell < 0) return;
  const int32_t output = __ldg(cells + cell);
  if (output < 0) return;
  const int k = offsets.first + static_cast<int>(blockIdx.y);
  rules.table[int64_t{output} * rules.num_offsets + k] = static_cast<int32_t>(row);
  atomicOr(rules.masks + int64_t{output} * rules.words + k / 32, 1u << k % 32);
}

class RulesGrid final : public GridCuda {
 public:
  explicit RulesGrid(int64_t limit_mib) : limit_mib_(limit_mib) {}

  int64_t bytes() const override { return 0; }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows&, bool,
                                  const ExecutionContext& context) const override {
    const CoordinateSet& inputs = problem.inputs;
    const CellOrder order = CellOrder::Dense(problem.outputs);
    Array<int32_t> cells;
    {
      const StageScope stage(context, Stage::kIndexBuild);
      VOXCONV_ASSIGN_OR_RETURN(cells, NumberOutputs(order, problem.outputs, context));
    }
    VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(arrays.table.data(), 0xff,
                                                       arrays.table.bytes(), *context.stream));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(arrays.masks.data(), 0, arrays.masks.bytes(), *context.stream));
    const auto all = problem.geometry.input_offsets();
    const int num_offsets = problem.geometry.num_offsets();
    const Rules rules{arrays.table.data(), arrays.masks.data(), num_offsets,
                      static_cast<int>(CeilDiv(num_offsets, 32))};
    for (int first = 0; first < num_offsets; first += kMaxOffsets) {
      Offsets offsets{.first = first, .count = std::min(kMaxOffsets, num_offsets - first)};
      std::copy_n(all.begin() + first, offsets.count, offsets.offset);
      dim3 grid = GridFor(inputs.size(), kThreads);
      grid.y = static_cast<unsigned>(offsets.count);
      VOXCONV_LAUNCH(WriteKernel, grid, kThreads, 0, context, inputs.rows().data(), inputs.size(),
                     offsets, order, cells.data(), rules);
    }
    if (Counters* counters = context.counters()) {
      counters->queries += inputs.size() * num_offsets;
    }
    return MakeNeighbourMap(problem, std::move(arrays));
  }

 private:
  absl::StatusOr<Array<int32_t>> NumberOutputs(const CellOrder& order, const CoordinateSet& outputs,
                                               const ExecutionContext& context) const {
    VOXCONV_RETURN_IF_ERROR(order.CheckLimit(sizeof(int32_t), 1, 0, limit_mib_, "rules"));
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> cells,
                             AllocateArray<int32_t>(order.num_cells(), context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(cells.data(), 0xff, cells.bytes(), *context.stream));
    VOXCONV_LAUNCH(NumberKernel, GridFor(outputs.size(), kThreads), kThreads, 0, context,
                   outputs.rows().data(), outputs.size(), order, cells.data());
    return cells;
  }

  int64_t limit_mib_;
};

}  // namespace

GridCudaPtr MakeRulesGridCuda(int64_t limit_mib) { return std::make_unique<RulesGrid>(limit_mib); }

}  // namespace voxconv
