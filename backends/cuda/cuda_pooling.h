// SPDX-License-Identifier: Apache-2.0
// Pooling on the CUDA backend; the parts of core/tensor_ops.h and core/training_ops.h that need
// more than one kernel.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {

// See TensorOps. The arguments must have been checked (core/tensor_checks.h). Deterministic: every
// output is the sum of one thread, or of partial sums in a fixed order. CudaUnpool takes 4 * N_in *
// K bytes of temporary memory, and CudaPool 4 * N_out * K where the map is pairs.
absl::Status CudaPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                      const TensorView& y, int32_t* switches, const ExecutionContext& context);
absl::Status CudaUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                        const int32_t* switches, const TensorView& y,
                        const ExecutionContext& context);
absl::Status CudaGlobalPool(const Array<Coordinate>& rows, PoolMode mode, const ConstTensorView& x,
                            const TensorView& y, const ExecutionContext& context);
// See TrainingOps. The arguments must have been checked (core/training_checks.h). Rows of a sample
// that dy has no row for get 0. Deterministic; does not synchronise.
absl::Status CudaGlobalPoolGrad(const Array<Coordinate>& rows, PoolMode mode,
                                const ConstTensorView& x, const ConstTensorView& y,
                                const ConstTensorView& dy, const TensorView& dx,
                                const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_POOLING_H_
