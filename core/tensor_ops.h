// The dense operators of network layers, implemented once a backend. All tensors are row-major
// in the backend's memory and, but for Convert, of one dtype: f32 on the CPU, also f16 and bf16 on
// CUDA (computed in f32, rounded once; tf32 is f32 here but for Linear); outputs are overwritten.
// Those of ScaleShift and Add may alias an input, no others may. Work is queued on context.stream.
// Shape mismatches are refused by name and value.
#ifndef VOXCONV_CORE_TENSOR_OPS_H_
#define VOXCONV_CORE_TENSOR_OPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"
#include "core/kernel_map.h"
#include "core/tensor.h"

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
  virtual absl::Status ScaleShift(const TensorView& x, const float* scale, const float* shift,
                                  bool relu, const TensorView& y,
                                  const ExecutionContext& context) = 0;
  // y = x, rounded to y's dtype where that is another.
  virtual absl::Status Convert(const TensorView& x, const TensorView& y,
                               const ExecutionContext& context) = 0;
  // y = a + b, then max(y, 0) if `relu`.
  virtual absl::Status Add(const TensorView& a, const TensorView& b, bool relu, const TensorView& y,
                           const ExecutionContext& context) = 0;
  // y[i] = (a[i], b[i]).
  virtual absl::Status Concat(const TensorView& a, const TensorView& b, const TensorView& y,
                              const ExecutionContext& context) = 0;
  // y = x * weights + bias; weights [C_in, C_out], bias [C_out] or null.
  virtual absl::Status Linear(const TensorView& x, const TensorView& weights, const float* bias,
                              const TensorView& y, const ExecutionContext& context) = 0;

  // Pools over a kernel map of layout kPairs; an output without inputs is 0. `switches` (kMax only,
  // may be null): [N_out, C] int32, the input row taken, -1 = none; the lowest kernel offset wins
  // a tie.
  virtual absl::Status Pool(const KernelMap& map, PoolMode mode, const TensorView& x,
                            const TensorView& y, int32_t* switches,
                            const ExecutionContext& context) = 0;
  // The transpose of Pool with the same map and mode: x is [N_out, C], y [N_in, C]. kMax needs the
  // switches; values sent to one row add up.
  virtual absl::Status Unpool(const KernelMap& map, PoolMode mode, const TensorView& x,
                              const int32_t* switches, const TensorView& y,
                              const ExecutionContext& context) = 0;
  // Over each batch sample: y is [num_batches, C]; kSum, kMax and kAveragePresent. A sample
  // without voxels gives 0. `rows`: the coordinates of x.
  virtual absl::Status GlobalPool(const Array<Coordinate>& rows, PoolMode mode, const TensorView& x,
                                  const TensorView& y, const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_OPS_H_
