// What planning adds on CUDA: launches, shapes of moves, where batched weights lie.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_

#include <cstdint>
#include <vector>

#include "core/backend.h"
#include "dataflows/gather_gemm_scatter/move_cuda.h"
#include "dataflows/gather_gemm_scatter/plan.h"

namespace voxconv {

// Offsets [first, first + count), those of a pass that one launch moves.
struct LaunchOffsets {
  int first = 0, count = 0;
};

// A matmul's weight matrices: in place at a constant distance, or copied next to each other.
struct BatchedWeights {
  bool copied = false;
  int64_t first = 0;   // matrix of the weights, or of the copies
  int64_t stride = 1;  // matrices from one to the next
};

class GatherGemmScatterCudaPlan final : public GatherGemmScatterPlan {
 public:
  // Books, beside the buffers,
  // - a copy of the weights of batches whose offsets are no arithmetic progression (Minuet 5.2.2
  //   permutes them too): at most the size of the weights;
  // - for 16-bit features whose outputs are summed in more than one launch, an f32 accumulator
  //   [N_out, C_out], so that sums are rounded once.
  GatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map, const ConvShape& shape,
                            const MoveRule& rule, const CudaMoveRule& cuda,
                            const ExecutionContext& context);

  const CudaMoveRule& cuda() const { return cuda_; }
  // [pass]: ranges to launch, in order.
  const std::vector<std::vector<LaunchOffsets>>& gathers() const { return gathers_; }
  const std::vector<std::vector<LaunchOffsets>>& scatters() const { return scatters_; }
  int64_t num_scatters() const { return num_scatters_; }  // over all passes

  // Offsets whose matrices Forward copies to weights_slot, in order; empty: none, no slot.
  const std::vector<int>& copied_weights() const { return copied_weights_; }
  BatchedWeights WeightsOf(const Matmul& matmul) const;
  int weights_slot() const { return weights_slot_; }
  int accumulator_slot() const { return accumulator_slot_; }  // -1: none

  // How features move between addresses that `alignment` divides. Where no tile is given, a thread
  // of a scatter takes one vector (more were slower at every size measured), one of a gather as
  // many as leave enough threads to fill the device.
  MoveShape GatherShape(int64_t rows, uint64_t alignment) const;
  MoveShape ScatterShape(int64_t rows, uint64_t alignment) const;

 private:
  // One vector a thread where `tile` is 0.
  MoveShape ShapeOf(int64_t rows, int64_t channels, int64_t tile, uint64_t alignment) const;

  CudaMoveRule cuda_;
  int64_t gather_tile_, scatter_tile_;  // channels; 0: not given
  int num_multiprocessors_;
  std::vector<std::vector<LaunchOffsets>> gathers_, scatters_;
  int64_t num_scatters_ = 0;
  std::vector<int> copied_weights_;
  std::vector<int> place_of_copy_;  // [K]: index in copied_weights_, -1 = none
  int weights_slot_ = -1;
  int accumulator_slot_ = -1;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_PLAN_CUDA_H_
