// SPDX-License-Identifier: Apache-2.0
// Voxels and their features as one object.
#ifndef VOXCONV_CORE_SPARSE_TENSOR_H_
#define VOXCONV_CORE_SPARSE_TENSOR_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/check.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// Row i of `features` belongs to row i of `coordinates`. Shares the coordinates; does not own the
// features.
struct SparseTensorView {
  CoordinateSetPtr coordinates;  // [N]
  ConstTensorView features;      // [N, C]
};

// Owns the features and shares the coordinates, both in the memory of one backend, which must
// outlive it.
class SparseTensor {
 public:
  // No rows and no coordinates.
  SparseTensor() = default;
  // `coordinates` has as many rows as `features` (checked). It is null if the rows are not voxels;
  // a global pooling gives batch samples, for example.
  SparseTensor(CoordinateSetPtr coordinates, Tensor features)
      : coordinates_(std::move(coordinates)), features_(std::move(features)) {
    VOXCONV_CHECK(coordinates_ == nullptr || coordinates_->size() == features_.rows());
  }

  // Copies both to the context's backend, and rounds the features to `dtype`. `coordinates`: [N] on
  // the host, in units of the finest voxel. `features`: [N, channels] on the host. The arguments
  // may be gone when this returns. Queued on the context's stream. O(N * channels). Errors of
  // CoordinateSet::Create; kInvalidArgument, naming both numbers, for features that do not fit.
  static absl::StatusOr<SparseTensor> Create(absl::Span<const Coordinate> coordinates,
                                             const Int3& tensor_stride,
                                             absl::Span<const float> features, int64_t channels,
                                             const ExecutionContext& context,
                                             DType dtype = DType::kF32);

  const CoordinateSetPtr& coordinates() const { return coordinates_; }
  const Tensor& features() const { return features_; }
  // The tensor stride of the coordinates, which must not be null (checked).
  const Int3& tensor_stride() const {
    VOXCONV_CHECK(coordinates_ != nullptr);
    return coordinates_->tensor_stride();
  }
  SparseTensorView view() const { return {coordinates_, features_.view()}; }

 private:
  CoordinateSetPtr coordinates_;
  Tensor features_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_SPARSE_TENSOR_H_
