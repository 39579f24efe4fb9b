// SPDX-License-Identifier: Apache-2.0
// Batch norm on CUDA. core/training_ops.h says what the functions of training do.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Moments and sums take two launches, read each matrix once, and take at most 9 KiB of temporary
// memory for each channel. The others take one launch.
absl::Status CudaChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                                const ExecutionContext& context);
absl::Status CudaSumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                               int64_t channels, double* sums, const ExecutionContext& context);
absl::Status CudaMomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation,
                               const ExecutionContext& context);
absl::Status CudaBatchNormScale(const BatchNormBatch& batch, const ExecutionContext& context);
absl::Status CudaBatchNormGradSums(const BatchNormGradArgs& args, const ExecutionContext& context);
absl::Status CudaBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                    const ExecutionContext& context);

// Batch norm with running statistics: each is [1, C] in the device's memory, of any dtype.
struct RunningNorm {
  ConstTensorView mean, variance, gamma, beta;
  double epsilon = 1e-5;  // added to the variance
  // Results in the device's memory, float32 [C] each: what TensorOps::ScaleShift and Epilogue take
  // for the norm.
  float *scale = nullptr, *shift = nullptr;
};

// Writes the results of one to four norms in one launch. Queues only. kInvalidArgument for arrays
// that do not fit each other.
absl::Status CudaRunningScales(absl::Span<const RunningNorm> norms,
                               const ExecutionContext& context);

// The processes that share a batch, each on a GPU of one host that reaches the others' memory. They
// make the same calls below in the same order, each on one stream. A call's kernel leaves what it
// has summed up in the memory of the others, and waits on the device for what they leave here. So
// all processes must make the call for any of them to end. The caller owns the memory. It must
// outlive the kernels of all processes.
//
// The functions below only queue. Their pointers and matrices are in the device's memory; columns
// are float32 [C], and matrices [N, C] with N below 2^32, which may differ between processes and be
// 0. Errors: those of the functions that they are named after, and kInvalidArgument for peers out
// of range, with null memory, or with room for fewer channels.
struct BatchPeers {
  static constexpr int kMost = 16;
  static constexpr int64_t kMostChannels = 1024;  // so that all waiting blocks run at once

  // The bytes of each process's memory for batches of up to `channels` channels.
  static int64_t Bytes(int count, int64_t channels) { return 2 * count * channels * 32; }

  int rank = 0, count = 0;
  int64_t channels = 0;  // what the memory has room for
  // By process, as this device reaches it. Aligned to 16 bytes; all zeros before the first call.
  void* memory[kMost] = {};
  uint32_t turn = 0;  // the call's number with this memory, from 1 on
};

// ChannelMoments of all processes' rows, and BatchNormScale with them, in two launches. Moments of
// two sets of rows become those of both by the update of Chan, Golub and LeVeque (1979).
// `batch.rows` are this process's rows; batch.mean, batch.deviation and batch.shared_rows are not
// read. Writes `mean` [C] and `rows` (one float64), of all processes, as well. They are the same in
// all processes, bit by bit.
absl::Status CudaSharedMoments(const ConstTensorView& x, const BatchNormBatch& batch,
                               const BatchPeers& peers, float* mean, double* rows,
                               const ExecutionContext& context);
// BatchNormGradSums, in two launches: args.sum_dy and args.sum_dy_x receive the sums over this
// process's rows, which are the gradients of its beta and gamma. `all_dy` and `all_dy_x` [C]
// receive those of all processes.
absl::Status CudaSharedGradSums(const BatchNormGradArgs& args, const BatchPeers& peers,
                                float* all_dy, float* all_dy_x, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_
