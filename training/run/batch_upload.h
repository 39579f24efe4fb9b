// SPDX-License-Identifier: Apache-2.0
// Takes batches to the device.
#ifndef VOXCONV_TRAINING_RUN_BATCH_UPLOAD_H_
#define VOXCONV_TRAINING_RUN_BATCH_UPLOAD_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/networks/graph.h"
#include "voxconv/training/data/labelled_cloud.h"

namespace voxconv {

// Copies batches by way of TrainingOps::HostMemory, so that on CUDA a copy does not wait for what
// is queued before it. A backend that cannot train copies from where the batch lies. The backend
// must outlive it.
class BatchUpload {
 public:
  explicit BatchUpload(Backend& backend) : backend_(backend) {}

  // The voxels of `batch` as an input of `graph`. Queues their copies on the main stream.
  // Two buffers take turns: the caller must wait for the stream at least once between a call and
  // the call after the next. Errors of SparseTensor::Create and TrainingOps::HostMemory.
  absl::StatusOr<SparseTensor> Upload(const LabelledVoxels& batch, const NetworkGraph& graph);

 private:
  // Copies both to host memory of the backend, where they then are.
  absl::Status Stage(absl::Span<const Coordinate>& rows, absl::Span<const float>& features,
                     const ExecutionContext& context);

  Backend& backend_;
  Buffer host_, other_;  // of the last batch, and of the one before
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_RUN_BATCH_UPLOAD_H_
