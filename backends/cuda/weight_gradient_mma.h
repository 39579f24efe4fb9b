// SPDX-License-Identifier: Apache-2.0
// Weight gradients (H-CNN, Equation 7) on tensor cores, or in f32 by fused multiply-and-add. Rows
// are gathered straight into shared memory. The work is cut into equal ranges, one for each block
// that the GPU holds at once. A range gives one partial sum for each offset that it touches.
// Partial sums are added in a fixed order.
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_MMA_H_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_MMA_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// Whether MmaWeightGradient can compute this gradient: on compute capability 8.0 or more, and with
// so few channels that two partial sums fit its memory.
bool HasMmaWeightGradient(int64_t c_in, int64_t c_out, const ExecutionContext& context);

// See CudaWeightGradient. HasMmaWeightGradient must be true. Takes at most 64 MiB of temporary
// memory. kResourceExhausted if this memory does not suffice. The work is queued on the context's
// stream. This function does not synchronise it. Each group of offsets takes two launches. A group
// has as many offsets as have partial sums that fit into the memory, and at most
// StepRanges::kMaxOffsets. The order of the sums depends on the number of pairs of each offset and
// on the GPU's model alone.
absl::Status MmaWeightGradient(const KernelMap& map, const ConstTensorView& x,
                               const ConstTensorView& dy, Precision precision,
                               const TensorView& gradient, const ExecutionContext& context);

// The work of a launch: the pairs of consecutive offsets. They are cut into steps, and each step
// has pairs of one offset. Steps are cut into ranges of `range_steps`. This struct is a kernel
// parameter, so that no launch waits for a copy.
//
// Steps are numbered from offset to offset. Range r has the numbers [r * range_steps, (r + 1) *
// range_steps). The ranges of an offset take turns at its pairs (OffsetSteps in
// weight_gradient_steps.cuh). So all ranges pass the same output rows at about the same time.
struct StepRanges {
  static constexpr int kMaxOffsets = 256;

  int32_t num_offsets = 0;
  int32_t range_steps = 0;
  int64_t pair_ptr[kMaxOffsets + 1];  // first pair of each offset; the last is the end
  int32_t step_ptr[kMaxOffsets + 1];  // first step of each offset; the last is the end

  int num_ranges() const { return static_cast<int>(CeilDiv(step_ptr[num_offsets], range_steps)); }
  // The sum of range r for offset k is in slot r + k. Ranges and offsets both ascend along the
  // steps, so no two sums have the same slot.
  int num_slots() const { return num_ranges() + num_offsets - 1; }
};

// All pointers are to device memory.
struct RangeOperands {
  const int32_t* in = nullptr;  // pairs
  const int32_t* out = nullptr;
  const void* x = nullptr;   // [N_in, c_in]
  const void* dy = nullptr;  // [N_out, c_out]
  int64_t c_in = 0, c_out = 0;
  float* sums = nullptr;  // [slots, c_in, c_out]
};

// The kernel for one element type and pair of channel counts.
class RangeSums {
 public:
  virtual ~RangeSums() = default;
  virtual int step_pairs() const = 0;
  // The number of ranges whose blocks the GPU holds at once.
  virtual absl::StatusOr<int> NumRanges(const ExecutionContext& context) const = 0;
  // sums[r + k] = the sum of transposed(x[p]) * dy[q] over the pairs (p, q) of offset k in range r.
  // Slots of a range and an offset that do not meet are not written.
  virtual absl::Status Launch(const StepRanges& ranges, const RangeOperands& operands,
                              const ExecutionContext& context) const = 0;
};

// One of these for each precision, so that they compile side by side. `vector`: rows of x and dy
// are aligned to 16 bytes and have a multiple of that. `warpgroups`: the device multiplies by
// warpgroups, and this program has code for that.
std::unique_ptr<const RangeSums> RangeSumsF16(int64_t c_in, int64_t c_out, bool vector,
                                              bool warpgroups);
std::unique_ptr<const RangeSums> RangeSumsBf16(int64_t c_in, int64_t c_out, bool vector,
                                               bool warpgroups);
std::unique_ptr<const RangeSums> RangeSumsTf32(int64_t c_in, int64_t c_out, bool vector);
std::unique_ptr<const RangeSums> RangeSumsF32(int64_t c_in, int64_t c_out, bool vector);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_MMA_H_
