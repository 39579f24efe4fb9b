// The dense operators of network layers, implemented once a backend. All tensors are row-major and
// contiguous, in the backend's memory. All tensors of a call have one dtype, except in Convert: f32
// on the CPU, f32, f16 or bf16 on CUDA. Values are computed in f32 and rounded once. Outputs are
// overwritten. The outputs of ScaleShift and Add may alias an input; no other output may. Work is
// queued on context.stream. A shape that does not fit is refused by name and value.
#ifndef VOXCONV_CORE_TENSOR_OPS_H_
#define VOXCONV_CORE_TENSOR_OPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"
#include "core/kernel_map.h"
#include "core/tensor.h"
#include "core/types.h"

namespace voxconv {

// kAverage divides by the kernel volume F^3 (H-CNN), kAveragePresent by the voxels present.
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

  // y = x * scale + shift per channel, then max(y, 0) if `relu`: batch norm at inference with
  // scale = gamma / sqrt(var + eps), shift = beta - mean * scale. scale, shift: [C] in the
  // backend's memory; null scale is 1, null shift 0 (a bias alone).
  virtual absl::Status ScaleShift(const ConstTensorView& x, const float* scale, const float* shift,
                                  bool relu, const TensorView& y,
                                  const ExecutionContext& context) = 0;
  // y = x, rounded to y's dtype where that is another.
  virtual absl::Status Convert(const ConstTensorView& x, const TensorView& y,
                               const ExecutionContext& context) = 0;
  // y = a + b, then max(y, 0) if `relu`.
  virtual absl::Status Add(const ConstTensorView& a, const ConstTensorView& b, bool relu,
                           const TensorView& y, const ExecutionContext& context) = 0;
  // y[i] = (a[i], b[i]).
  virtual absl::Status Concat(const ConstTensorView& a, const ConstTensorView& b,
                              const TensorView& y, const ExecutionContext& context) = 0;
  // y = x * weights + bias; weights [C_in, C_out], bias [C_out] or null. Products are computed in
  // `precision`: kTf32 or kF32 for f32, the precision of the dtype for the others.
  virtual absl::Status Linear(const ConstTensorView& x, const ConstTensorView& weights,
                              const float* bias, Precision precision, const TensorView& y,
                              const ExecutionContext& context) = 0;

  // transposed[k' * C_out + co, ci] = weights[k * C_in + ci, co], with k' = K-1-k if `reversed` and
  // k otherwise. weights: [K * C_in, C_out]; transposed: [K * C_out, C_in].
  virtual absl::Status TransposeWeights(const ConstTensorView& weights, int num_offsets,
                                        bool reversed, const TensorView& transposed,
                                        const ExecutionContext& context) = 0;
  // The weight gradient of a convolution (H-CNN, Equation 8): for every offset k, gradient[k] = sum
  // over its pairs (p, q) of transposed(x[p]) * dy[q], in the order of the pairs, so that the
  // result is always the same. `map`: canonical pairs. x: [N_in, C_in], dy: [N_out, C_out],
  // gradient: [K * C_in, C_out], of the same dtype as x and dy or f32. Sums are f32. Gathers rows
  // of the pairs in blocks and multiplies them; its scratch memory is at most 64 MiB. O(pairs *
  // C_in * C_out).
  virtual absl::Status WeightGradient(const KernelMap& map, const ConstTensorView& x,
                                      const ConstTensorView& dy, Precision precision,
                                      const TensorView& gradient,
                                      const ExecutionContext& context) = 0;

  // Pools over a kernel map of the form kPairs; an output without inputs is 0. `switches` (kMax
  // only, may be null): [N_out, C] int32, the input row taken, -1 = none; the lowest kernel offset
  // wins a tie.
  virtual absl::Status Pool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                            const TensorView& y, int32_t* switches,
                            const ExecutionContext& context) = 0;
  // The transpose of Pool with the same map and mode: x is [N_out, C], y [N_in, C]. kMax needs the
  // switches; values sent to one row add up.
  virtual absl::Status Unpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                              const int32_t* switches, const TensorView& y,
                              const ExecutionContext& context) = 0;
  // Over each batch sample: y is [num_batches, C]; kSum, kMax and kAveragePresent. A sample
  // without voxels gives 0. `rows`: the coordinates of x.
  virtual absl::Status GlobalPool(const Array<Coordinate>& rows, PoolMode mode,
                                  const ConstTensorView& x, const TensorView& y,
                                  const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_OPS_H_
