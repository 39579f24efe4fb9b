// SPDX-License-Identifier: Apache-2.0
// Where a trainer meets other processes that share its batch.
#ifndef VOXCONV_TRAINING_SHARED_BATCH_H_
#define VOXCONV_TRAINING_SHARED_BATCH_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// Several processes, or threads with a trainer each, train one network. Each step, each of them has
// a part of the batch. These functions exchange what the parts must know of each other, by MPI,
// NCCL or shared memory.
//
// A function replaces `values`, [size] in the backend's memory, by what all processes get. It
// queues its work on the context's stream, or waits for the stream first. All processes call the
// same functions in the same order, with the same sizes. A step of which one process fails never
// ends in the others, so who starts the processes must end them.
struct SharedBatch {
  template <typename T>
  using Exchange =
      std::function<absl::Status(T* values, int64_t size, const ExecutionContext& context)>;

  // Batch norms take the mean and variance of all parts (synchronised batch norm). Both are set, or
  // both are null: then each part has its own statistics.
  // - Forward, for each batch norm: the sum over all processes (TrainingOps::SumsOfMoments).
  Exchange<double> add_moments;
  // - Backward, for each batch norm whose input needs a gradient: the sum over all processes.
  Exchange<float> add_norm_gradients;

  // The gradients of all parameters, before the optimiser's step. With their mean over the
  // processes, a step minimises the mean of the parts' losses. Null: they stay as they are.
  Exchange<float> combine_gradients;
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_SHARED_BATCH_H_
