#include "core/tensor.h"

#include "core/half.h"

namespace voxconv {
namespace {

template <typename Convert>
std::vector<uint16_t> Narrow(absl::Span<const float> values, const Convert& convert) {
  std::vector<uint16_t> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = convert(values[i]);
  return narrow;
}

}  // namespace

absl::StatusOr<Tensor> Tensor::Create(int64_t rows, int64_t channels, DType dtype,
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

absl::StatusOr<Tensor> Tensor::FromHost(absl::Span<const float> host, int64_t rows,
                                        int64_t channels, const ExecutionContext& context,
                                        DType dtype) {
  VOXCONV_CHECK(static_cast<int64_t>(host.size()) == rows * channels);
  VOXCONV_ASSIGN_OR_RETURN(Tensor tensor, Create(rows, channels, dtype, context));
  std::vector<uint16_t> narrow;
  const void* from = host.data();
  if (dtype == DType::kF16) narrow = Narrow(host, FloatToHalfBits);
  if (dtype == DType::kBF16) narrow = Narrow(host, FloatToBf16Bits);
  if (SizeOf(dtype) == 2) from = narrow.data();
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(tensor.view_.data, tensor.view_.space, from,
                                                MemorySpace::kHost, tensor.view_.bytes(),
                                                *context.stream));
  return tensor;
}

absl::StatusOr<std::vector<float>> ToHost(const TensorView& view, const ExecutionContext& context) {
  std::vector<float> host(view.rows * view.channels);
  std::vector<uint16_t> narrow(SizeOf(view.dtype) == 2 ? host.size() : 0);
  void* to = narrow.empty() ? static_cast<void*>(host.data()) : narrow.data();
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(to, MemorySpace::kHost, view.data, view.space,
                                                view.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  for (size_t i = 0; i < narrow.size(); ++i) {
    host[i] = view.dtype == DType::kF16 ? HalfBitsToFloat(narrow[i]) : Bf16BitsToFloat(narrow[i]);
  }
  return host;
}

}  // namespace voxconv
