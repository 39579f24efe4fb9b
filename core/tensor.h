// Feature matrices.
#ifndef VOXCONV_CORE_TENSOR_H_
#define VOXCONV_CORE_TENSOR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "core/backend.h"

namespace voxconv {

// A row-major [rows, channels] matrix somewhere; does not own. Row i starts at element
// i * channels.
struct TensorView {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t channels = 0;
  DType dtype = DType::kF32;
  MemorySpace space = MemorySpace::kHost;

  int64_t bytes() const { return rows * channels * SizeOf(dtype); }
  float* f32() const {
    VOXCONV_CHECK(dtype == DType::kF32 || dtype == DType::kTf32);
    return static_cast<float*>(data);
  }
};

// What `view` views, widened to f32. Synchronises the stream.
absl::StatusOr<std::vector<float>> ToHost(const TensorView& view, const ExecutionContext& context);

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
