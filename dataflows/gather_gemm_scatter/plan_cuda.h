// SPDX-License-Identifier: Apache-2.0
// What planning adds on CUDA: the launches, the shapes of moves and the place of batched weights.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_

#include <cstdint>
#include <vector>

#include "voxconv/core/backend.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/plan.h"

namespace voxconv {

// The offsets [first, first + count) of a pass. One launch moves them.
struct LaunchOffsets {
  int first = 0, count = 0;
};

// Where a matmul finds its weight matrices: in the weights at a constant distance, or in copies
// that lie next to each other.
struct BatchedWeights {
  bool copied = false;
  int64_t first = 0;   // index of the first matrix, in the weights or in the copies
  int64_t stride = 1;  // distance from one matrix to the next, in matrices
};

class GatherGemmScatterCudaPlan final : public GatherGemmScatterPlan {
 public:
  // Books workspace for the buffers, and for two more things where they are needed:
  // - A copy of the weights of those batches whose offsets are no arithmetic progression (Minuet
  //   5.2.2 permutes weights too). It is at most as large as the weights.
  // - An f32 accumulator [N_out, C_out], if features have 16 bits and more than one launch sums
  //   the outputs, or one adds atomically. Sums are then rounded once.
  GatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map, const ConvShape& shape,
                            const MoveRule& rule, const CudaMoveRule& cuda, bool ragged,
                            const ExecutionContext& context);

  const CudaMoveRule& cuda() const { return cuda_; }
  // All matmuls of a pass are one launch.
  bool ragged() const { return ragged_; }
  // [pass]: the ranges of offsets to launch, in order.
  const std::vector<std::vector<LaunchOffsets>>& gathers() const { return gathers_; }
  const std::vector<std::vector<LaunchOffsets>>& scatters() const { return scatters_; }
  int64_t num_scatters() const { return num_scatters_; }  // over all passes
  // Scatters add atomically to an f32 sum: the accumulator, or the output if that is f32.
  bool adds_atomically() const { return adds_atomically_; }

  // Forward copies the weight matrices of these offsets to weights_slot, in this order. If there
  // are none, weights_slot is -1.
  const std::vector<int>& copied_weights() const { return copied_weights_; }
  BatchedWeights WeightsOf(const Matmul& matmul) const;
  int weights_slot() const { return weights_slot_; }
  int accumulator_slot() const { return accumulator_slot_; }  // -1: none

  // How features move. `alignment` is the bitwise or of the addresses they move from and to. If no
  // tile is given, a thread of a scatter moves one vector, because more were slower at every size
  // measured. A thread of a gather then moves as many vectors as leave enough threads to fill the
  // device.
  MoveShape GatherShape(int64_t rows, uint64_t alignment) const;
  MoveShape ScatterShape(int64_t rows, uint64_t alignment) const;

 private:
  // A thread moves one vector if `tile` is 0.
  MoveShape ShapeOf(int64_t rows, int64_t channels, int64_t tile, uint64_t alignment) const;

  CudaMoveRule cuda_;
  bool ragged_;
  int64_t gather_tile_, scatter_tile_;  // channels; 0: not given
  int num_multiprocessors_;
  std::vector<std::vector<LaunchOffsets>> gathers_, scatters_;
  int64_t num_scatters_ = 0;
  bool adds_atomically_ = false;
  std::vector<int> copied_weights_;
  std::vector<int> place_of_copy_;  // [K]: index in copied_weights_, -1 = none
  int weights_slot_ = -1;
  int accumulator_slot_ = -1;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_
