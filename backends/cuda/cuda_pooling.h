// Pooling on the CUDA backend; the parts of core/tensor_ops.h that need more than one kernel.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/tensor_ops.h"

namespace voxconv {

// See TensorOps; the arguments have been checked (core/tensor_checks.h). Deterministic: every
// output is the sum of one thread, or of partial sums in a fixed order. Pool and Unpool take
// rows x K entries of temporary memory.
absl::Status CudaPool(const KernelMap& map, PoolMode mode, const TensorView& x, const TensorView& y,
                      int32_t* switches, const ExecutionContext& context);
absl::Status CudaUnpool(const KernelMap& map, PoolMode mode, const TensorView& x,
                        const int32_t* switches, const TensorView& y,
                        const ExecutionContext& context);
// Refuses a batch sample that y has no row for, and synchronises to find out.
absl::Status CudaGlobalPool(const Array<Coordinate>& rows, PoolMode mode, const TensorView& x,
                            const TensorView& y, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_
