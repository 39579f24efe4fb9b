// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/tensor.h"

#include "absl/strings/str_cat.h"
#include "voxconv/core/half.h"

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
    return absl::InvalidArgumentError(
        absl::StrCat("tensor: shape [", rows, ", ", channels,
                     "]; allowed are 0 rows and channels or more, below 2^63 bytes in all"));
  }
  VOXCONV_ASSIGN_OR_RETURN(
      Buffer buffer, context.backend->Allocate(rows * channels * SizeOf(dtype), *context.stream));
  Tensor tensor;
  tensor.view_ = {buffer.data(), rows, channels, dtype, context.backend->device(), channels};
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
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(tensor.view_.data, tensor.view_.device.space, from,
                                                MemorySpace::kHost, tensor.view_.bytes(),
                                                *context.stream));
  return tensor;
}

absl::StatusOr<std::vector<float>> ToHost(const ConstTensorView& view,
                                          const ExecutionContext& context) {
  const int64_t size = SizeOf(view.dtype), row_bytes = view.channels * size;
  std::vector<float> host(view.rows * view.channels);
  std::vector<uint16_t> narrow(size == 2 ? host.size() : 0);
  char* to = narrow.empty() ? reinterpret_cast<char*>(host.data())
                            : reinterpret_cast<char*>(narrow.data());
  const char* from = static_cast<const char*>(view.data);
  const int64_t pieces = view.contiguous() ? 1 : view.rows;
  const int64_t bytes = view.contiguous() ? view.bytes() : row_bytes;
  for (int64_t i = 0; i < pieces; ++i) {
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(to + i * row_bytes, MemorySpace::kHost,
                                                  from + i * view.row_stride * size,
                                                  view.device.space, bytes, *context.stream));
  }
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  for (size_t i = 0; i < narrow.size(); ++i) {
    host[i] = view.dtype == DType::kF16 ? HalfBitsToFloat(narrow[i]) : Bf16BitsToFloat(narrow[i]);
  }
  return host;
}

absl::Status CheckTensor(absl::string_view name, const ConstTensorView& tensor, int64_t rows,
                         int64_t channels, DType dtype, const Device& device, bool strided) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", what...));
  };
  if (tensor.rows != rows || tensor.channels != channels) {
    return refuse("shape [", tensor.rows, ", ", tensor.channels, "]; it must be [", rows, ", ",
                  channels, "]");
  }
  if (tensor.dtype != dtype) {
    return refuse("dtype ", ToString(tensor.dtype), "; it must be ", ToString(dtype));
  }
  if (tensor.device != device) {
    return refuse("it lies in ", ToString(tensor.device), "; the backend takes ", ToString(device));
  }
  if (strided && tensor.row_stride < channels && rows > 1) {
    return refuse("row stride ", tensor.row_stride, "; it must be at least ", channels,
                  ", the number of channels");
  }
  if (!strided && !tensor.contiguous()) {
    return refuse("row stride ", tensor.row_stride, "; it must be ", channels,
                  ", the number of channels");
  }
  if (tensor.data == nullptr && rows * channels > 0) return refuse("its data is null");
  return absl::OkStatus();
}

}  // namespace voxconv
