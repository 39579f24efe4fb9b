// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/run/batch_upload.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "voxconv/core/status_macros.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

absl::StatusOr<SparseTensor> BatchUpload::Upload(const LabelledVoxels& batch,
                                                 const NetworkGraph& graph) {
  const ExecutionContext context{&backend_, &backend_.main_stream(), nullptr};
  absl::Span<const Coordinate> rows = batch.coordinates;
  absl::Span<const float> features = batch.features;
  if (backend_.training_ops() != nullptr) {
    VOXCONV_RETURN_IF_ERROR(Stage(rows, features, context));
  }
  return SparseTensor::Create(rows, graph.coordinates()[0].tensor_stride, features, batch.channels,
                              context);
}

absl::Status BatchUpload::Stage(absl::Span<const Coordinate>& rows,
                                absl::Span<const float>& features,
                                const ExecutionContext& context) {
  const auto bytes =
      static_cast<int64_t>(rows.size() * sizeof(Coordinate) + features.size() * sizeof(float));
  const auto grow = [&](Buffer& buffer) -> absl::Status {
    buffer = Buffer();
    // Twice what is needed, so that it seldom grows.
    VOXCONV_ASSIGN_OR_RETURN(buffer, backend_.training_ops()->HostMemory(2 * bytes, context));
    return absl::OkStatus();
  };
  std::swap(host_, other_);
  if (host_.bytes() < bytes) VOXCONV_RETURN_IF_ERROR(grow(host_));
  if (other_.bytes() == 0) VOXCONV_RETURN_IF_ERROR(grow(other_));  // before the first step
  auto* const staged_rows = static_cast<Coordinate*>(host_.data());
  auto* const staged_features = reinterpret_cast<float*>(staged_rows + rows.size());
  std::copy(rows.begin(), rows.end(), staged_rows);
  std::copy(features.begin(), features.end(), staged_features);
  rows = {staged_rows, rows.size()};
  features = {staged_features, features.size()};
  return absl::OkStatus();
}

}  // namespace voxconv
