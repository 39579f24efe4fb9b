// SPDX-License-Identifier: Apache-2.0
// Feature matrices.
#ifndef VOXCONV_CORE_TENSOR_H_
#define VOXCONV_CORE_TENSOR_H_

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// A row-major matrix [rows, channels] on `device`. A view does not own the matrix. Row i starts at
// element i * row_stride. BasicTensorView<const void> views a matrix that must not be written.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  int64_t rows = 0;
  int64_t channels = 0;
  DType dtype = DType::kF32;
  Device device;
  int64_t row_stride = channels;  // elements from one row to the next; at least `channels`

  // Bytes of the elements, without those between rows.
  int64_t bytes() const { return rows * channels * SizeOf(dtype); }
  // Whether no elements lie between rows. Operators take only contiguous matrices (CheckTensor),
  // and so do dataflows unless they say otherwise (Capability::strides_rows).
  bool contiguous() const { return row_stride == channels || rows <= 1; }
  // A pointer to the elements of an f32 matrix (checked). Valid in the device's memory.
  auto* f32() const {
    VOXCONV_CHECK(dtype == DType::kF32);
    using Element = std::conditional_t<std::is_const_v<Void>, const float, float>;
    return static_cast<Element*>(data);
  }
  // Adds const. A template, because nvcc warns of a conversion to the class itself.
  template <typename Other>
  requires(!std::is_const_v<Void> && std::is_same_v<Other, const void>)
  operator BasicTensorView<Other>() const {  // NOLINT(google-explicit-constructor): adds const only
    return {data, rows, channels, dtype, device, row_stride};
  }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Checks that `tensor` is [rows, channels] of `dtype`, on `device`, contiguous unless `strided`,
// and that its data is not null if it has elements. kInvalidArgument begins with `name`, and says
// what is wrong and what is allowed.
absl::Status CheckTensor(absl::string_view name, const ConstTensorView& tensor, int64_t rows,
                         int64_t channels, DType dtype, const Device& device, bool strided = false);

// Copies the matrix to the host, as [rows, channels] without gaps, widened to f32. Synchronises the
// stream. A view with gaps is copied row by row.
absl::StatusOr<std::vector<float>> ToHost(const ConstTensorView& view,
                                          const ExecutionContext& context);

// Owns a contiguous matrix in the memory of one backend, which must outlive it. Move-only.
class Tensor {
 public:
  // [0, 0], without memory.
  Tensor() = default;
  // An uninitialised matrix. Stream behaviour and errors are those of Backend::Allocate.
  // kInvalidArgument for negative sizes and for sizes past 2^63 bytes.
  static absl::StatusOr<Tensor> Create(int64_t rows, int64_t channels, DType dtype,
                                       const ExecutionContext& context);
  // Copies `host` to the backend, rounded to nearest even in `dtype`. `host` must have rows *
  // channels values (checked), and may be gone when this returns. Queued on the context's stream.
  // Errors of Create.
  static absl::StatusOr<Tensor> FromHost(absl::Span<const float> host, int64_t rows,
                                         int64_t channels, const ExecutionContext& context,
                                         DType dtype = DType::kF32);

  const TensorView& view() const { return view_; }
  int64_t rows() const { return view_.rows; }
  int64_t channels() const { return view_.channels; }

  // See ToHost above.
  absl::StatusOr<std::vector<float>> ToHost(const ExecutionContext& context) const {
    return voxconv::ToHost(view_, context);
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_H_
