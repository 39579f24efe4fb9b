// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/sparse_tensor.h"

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::StatusOr<SparseTensor> SparseTensor::Create(absl::Span<const Coordinate> coordinates,
                                                  const Int3& tensor_stride,
                                                  absl::Span<const float> features,
                                                  int64_t channels, const ExecutionContext& context,
                                                  DType dtype) {
  const auto rows = static_cast<int64_t>(coordinates.size());
  const auto values = static_cast<int64_t>(features.size());
  const bool fits =
      channels >= 0 && (rows == 0 ? values == 0 : values % rows == 0 && values / rows == channels);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("features: ", values, " values; ", rows,
                                                   " rows of ", channels, " channels are needed"));
  }
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set,
                           CoordinateSet::Create(coordinates, tensor_stride, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor tensor,
                           Tensor::FromHost(features, rows, channels, context, dtype));
  return SparseTensor(std::move(set), std::move(tensor));
}

}  // namespace voxconv
