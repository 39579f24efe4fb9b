// SPDX-License-Identifier: Apache-2.0
// What planning decides for one map and shape, on every backend.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>

#include "voxconv/core/dataflow.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/schedule.h"

namespace voxconv {

enum class MoveOrder {
  kWeight,    // one walk over the rows for each offset (TorchSparse Figure 9a)
  kLocality,  // input-stationary gather, output-stationary scatter (Figure 9b)
  kTile,      // the same, and every tile of channels reads the map by itself (Minuet Algorithm 1)
};

// How features move between their matrices and the buffers.
struct MoveRule {
  PositionLayout layout = PositionLayout::kDenseTables;
  MoveOrder order = MoveOrder::kLocality;
  // Channels that one walk over a row's map entries moves. 0 means all.
  int64_t gather_tile = 0;
  int64_t scatter_tile = 0;

  static int64_t TileOf(int64_t tile, int64_t channels) {
    return tile == 0 || tile > channels ? channels : tile;
  }
};

// Choices that only CUDA has.
struct CudaMoveRule {
  int vector_bytes = 16;       // the widest access of gather and scatter: 2, 4, 8 or 16
  int offsets_per_launch = 0;  // offsets that one launch moves; 0: as many as fit a launch
  int streams = 1;             // the matmuls of a pass are spread over this many streams

  friend bool operator==(const CudaMoveRule&, const CudaMoveRule&) = default;
};

// The work of one forward call, in bytes, pairs and matmuls, by formula. The definition gives the
// formula.
Counters CountWork(const Schedule& schedule, const KernelMap& map, const ConvShape& shape,
                   const MoveRule& rule);

class GatherGemmScatterPlan : public DataflowPlan {
 public:
  // Books the gather buffer [schedule.buffer_rows, C_in] and the scatter buffer
  // [schedule.buffer_rows, C_out]. `kernel`: DataflowPlan::kernel.
  GatherGemmScatterPlan(Schedule schedule, const KernelMap& map, const ConvShape& shape,
                        const MoveRule& rule, std::string kernel)
      : schedule_(std::move(schedule)), rule_(rule) {
    kernel_ = std::move(kernel);
    const int64_t element = SizeOf(shape.types.input);
    work_ = CountWork(schedule_, map, shape, rule);
    gather_slot_ = booking_.Book(schedule_.buffer_rows * shape.c_in * element);
    scatter_slot_ = booking_.Book(schedule_.buffer_rows * shape.c_out * element);
  }

  const Schedule& schedule() const { return schedule_; }
  const MoveRule& rule() const { return rule_; }
  int gather_slot() const { return gather_slot_; }
  int scatter_slot() const { return scatter_slot_; }

 private:
  Schedule schedule_;
  MoveRule rule_;
  int gather_slot_ = -1;
  int scatter_slot_ = -1;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_H_
