// SPDX-License-Identifier: Apache-2.0
// The dense operators of network layers. Each backend implements them once.
//
// All tensors are row-major and contiguous, in the backend's memory. All tensors of a call have the
// same dtype, except in Convert and WeightGradient. The dtype is f32 on the CPU, and f32, f16 or
// bf16 on CUDA. Values are computed in f32 and rounded once. Outputs are overwritten. The outputs
// of ScaleShift and Add may be an input; no other output may overlap an input. Work is queued on
// the context's stream. No operator synchronises the stream. kInvalidArgument for arguments that
// do not fit (core/tensor_checks.h). kResourceExhausted if the temporary memory does not suffice.
#ifndef VOXCONV_CORE_TENSOR_OPS_H_
#define VOXCONV_CORE_TENSOR_OPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/types.h"

namespace voxconv {

// How a window of voxels becomes one. kAverage divides the sum by the number of kernel offsets, F^3
// for a cubic kernel (H-CNN). kAveragePresent divides it by the number of voxels in the window.
enum class PoolMode { kMax, kSum, kAverage, kAveragePresent };

constexpr absl::string_view ToString(PoolMode mode) {
  switch (mode) {
    case PoolMode::kMax:
      return "max";
    case PoolMode::kSum:
      return "sum";
    case PoolMode::kAverage:
      return "average";
    case PoolMode::kAveragePresent:
      return "average_present";
  }
  return "?";
}

class TensorOps {
 public:
  virtual ~TensorOps() = default;

  // y = x * scale + shift per channel, then max(y, 0) if `relu`. x, y: [N, C]. `scale` and `shift`:
  // [C], f32, in the backend's memory; a null scale is 1, a null shift is 0. This is batch norm at
  // inference with scale = gamma / sqrt(var + eps) and shift = beta - mean * scale. O(N * C).
  virtual absl::Status ScaleShift(const ConstTensorView& x, const float* scale, const float* shift,
                                  bool relu, const TensorView& y,
                                  const ExecutionContext& context) = 0;
  // y = x, rounded to y's dtype. x, y: [N, C]. O(N * C).
  virtual absl::Status Convert(const ConstTensorView& x, const TensorView& y,
                               const ExecutionContext& context) = 0;
  // y = a + b, then max(y, 0) if `relu`. a, b, y: [N, C]. O(N * C).
  virtual absl::Status Add(const ConstTensorView& a, const ConstTensorView& b, bool relu,
                           const TensorView& y, const ExecutionContext& context) = 0;
  // Row i of y is row i of a, then row i of b. a: [N, C_a], b: [N, C_b], y: [N, C_a + C_b].
  virtual absl::Status Concat(const ConstTensorView& a, const ConstTensorView& b,
                              const TensorView& y, const ExecutionContext& context) = 0;
  // y = x * weights + bias. x: [N, C_in], weights: [C_in, C_out], y: [N, C_out]. `bias`: [C_out],
  // f32, in the backend's memory, or null for none. Products are computed in `precision`, which
  // must be stored as the dtype of the tensors (StorageOf). O(N * C_in * C_out).
  virtual absl::Status Linear(const ConstTensorView& x, const ConstTensorView& weights,
                              const float* bias, Precision precision, const TensorView& y,
                              const ExecutionContext& context) = 0;

  // transposed[k' * C_out + co, ci] = weights[k * C_in + ci, co]. k' is K-1-k if `reversed`, else
  // k. K is `num_offsets`. weights: [K * C_in, C_out], transposed: [K * C_out, C_in].
  virtual absl::Status TransposeWeights(const ConstTensorView& weights, int num_offsets,
                                        bool reversed, const TensorView& transposed,
                                        const ExecutionContext& context) = 0;
  // The weight gradient of a convolution (H-CNN, Equation 7). For every offset k, gradient[k] is
  // the sum of transposed(x[p]) * dy[q] over the offset's pairs (p, q). `map`: of the form kPairs.
  // x: [N_in, C_in], dy: [N_out, C_out], gradient: [K * C_in, C_out]. The gradient has the dtype of
  // x and dy, or f32. Products are computed in `precision`, as in Linear. Sums are f32. The order
  // of the sums is fixed, so that the result is bitwise the same in every run. Takes at most 64 MiB
  // of temporary memory. O(pairs * C_in * C_out).
  virtual absl::Status WeightGradient(const KernelMap& map, const ConstTensorView& x,
                                      const ConstTensorView& dy, Precision precision,
                                      const TensorView& gradient,
                                      const ExecutionContext& context) = 0;

  // The form of a map that Pool takes besides kPairs, and reads with less work.
  virtual MapForm PoolForm() const { return MapForm::kPairs; }
  // Pools the inputs of each output row. `map`: of the form kPairs or PoolForm(). x: [N_in, C], y:
  // [N_out, C]. An output without inputs is 0. `switches`: [N_out, C] in the backend's memory, or
  // null; only kMax may have it. It receives the input row of each maximum, or -1 for an output
  // without inputs. Of equal maxima, that of the lowest kernel offset is taken. O((pairs + N_out) *
  // C).
  virtual absl::Status Pool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                            const TensorView& y, int32_t* switches,
                            const ExecutionContext& context) = 0;
  // The transpose of Pool with the same map and mode. `map`: of the form kPairs. x: [N_out, C], y:
  // [N_in, C]. Values that go to the same row of y are added. kMax needs the `switches` that Pool
  // wrote.
  virtual absl::Status Unpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                              const int32_t* switches, const TensorView& y,
                              const ExecutionContext& context) = 0;
  // Pools all voxels of each batch sample. `voxels`: those of the rows of x. x: [N, C], y: [number
  // of samples, C]. A sample without voxels gives 0. `mode` is kSum, kMax or kAveragePresent.
  // kInvalidArgument for more samples than y has rows (CoordinateSet::num_batches).
  virtual absl::Status GlobalPool(const CoordinateSet& voxels, PoolMode mode,
                                  const ConstTensorView& x, const TensorView& y,
                                  const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_OPS_H_
