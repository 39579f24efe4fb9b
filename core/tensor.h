// Feature matrices.
#ifndef VOXCONV_CORE_TENSOR_H_
#define VOXCONV_CORE_TENSOR_H_

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"

namespace voxconv {

// A row-major [rows, channels] matrix somewhere; does not own. Row i starts at element
// i * row_stride. BasicTensorView<const void> views what may not be written.
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
  // No elements lie between rows. Kernels take contiguous matrices alone (CheckTensor).
  bool contiguous() const { return row_stride == channels || rows <= 1; }
  // The elements as f32 (checked).
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

// kInvalidArgument, naming the tensor `name`, its value and what is allowed, unless `tensor` is
// [rows, channels] of `dtype`, contiguous, on `device`, and not null where it has elements.
absl::Status CheckTensor(absl::string_view name, const ConstTensorView& tensor, int64_t rows,
                         int64_t channels, DType dtype, const Device& device);

// What `view` views, [rows, channels] without gaps, widened to f32. Synchronises the stream.
absl::StatusOr<std::vector<float>> ToHost(const ConstTensorView& view,
                                          const ExecutionContext& context);

// Owns what a TensorView views.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialised.
  static absl::StatusOr<Tensor> Create(int64_t rows, int64_t channels, DType dtype,
                                       const ExecutionContext& context);
  // Copies `host` ([rows, channels]) to the backend, rounded to `dtype`. `host` may be gone when
  // this returns.
  static absl::StatusOr<Tensor> FromHost(absl::Span<const float> host, int64_t rows,
                                         int64_t channels, const ExecutionContext& context,
                                         DType dtype = DType::kF32);

  const TensorView& view() const { return view_; }
  int64_t rows() const { return view_.rows; }
  int64_t channels() const { return view_.channels; }

  // Widened to f32. Synchronises the stream.
  absl::StatusOr<std::vector<float>> ToHost(const ExecutionContext& context) const {
    return voxconv::ToHost(view_, context);
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_H_
