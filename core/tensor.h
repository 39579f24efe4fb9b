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

// Owns what a TensorView views.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialised.
  static absl::StatusOr<Tensor> Create(int64_t rows, int64_t channels, DType dtype,
                                       const ExecutionContext& context) {
    if (rows < 0 || channels < 0 || (channels > 0 && rows > INT64_MAX / 8 / channels)) {
      return absl::InvalidArgumentError("tensor: negative rows or channels, or past 2^63 bytes");
    }
    VOXCONV_ASSIGN_OR_RETURN(
        Buffer buffer, context.backend->Allocate(rows * channels * SizeOf(dtype), *context.stream));
    Tensor tensor;
    tensor.view_ = {buffer.data(), rows, channels, dtype, buffer.space()};
    tensor.buffer_ = std::move(buffer);
    return tensor;
  }
  // Copies `host` ([rows, channels], f32) to the backend. Other dtypes: kUnimplemented.
  static absl::StatusOr<Tensor> FromHost(absl::Span<const float> host, int64_t rows,
                                         int64_t channels, const ExecutionContext& context) {
    VOXCONV_CHECK(static_cast<int64_t>(host.size()) == rows * channels);
    VOXCONV_ASSIGN_OR_RETURN(Tensor tensor, Create(rows, channels, DType::kF32, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(tensor.view_.data, tensor.view_.space,
                                                  host.data(), MemorySpace::kHost,
                                                  tensor.view_.bytes(), *context.stream));
    return tensor;
  }

  const TensorView& view() const { return view_; }
  int64_t rows() const { return view_.rows; }
  int64_t channels() const { return view_.channels; }

  // Synchronises the stream. f32 only.
  absl::StatusOr<std::vector<float>> ToHost(const ExecutionContext& context) const {
    std::vector<float> host(view_.rows * view_.channels);
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(host.data(), MemorySpace::kHost, view_.f32(),
                                                  view_.space, view_.bytes(), *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    return host;
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_H_
