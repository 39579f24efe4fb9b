// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/host_output.h"

#include <cmath>
#include <limits>

#include "tbb/blocked_range.h"
#include "tbb/parallel_reduce.h"
#include "voxconv/core/half.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::tune {
namespace {

constexpr int64_t kElementsPerTask = 1 << 16;

// The square of a float does not leave the range of double, so that nothing has to be scaled.
struct Squares {
  double difference = 0;
  double norm = 0;
  bool finite = true;
};

template <typename Stored, typename Widen>
Squares Compare(const HostOutput& output, const HostOutput& expected, const Widen& widen) {
  const auto* a = static_cast<const Stored*>(output.data());
  const auto* b = static_cast<const Stored*>(expected.data());
  const auto add = [&](const tbb::blocked_range<int64_t>& range, Squares sum) {
    for (int64_t i = range.begin(); i < range.end(); ++i) {
      const double x = widen(a[i]), y = widen(b[i]);
      sum.finite = sum.finite && std::isfinite(x) && std::isfinite(y);
      sum.difference += (x - y) * (x - y);
      sum.norm += y * y;
    }
    return sum;
  };
  const auto join = [](const Squares& left, const Squares& right) {
    return Squares{left.difference + right.difference, left.norm + right.norm,
                   left.finite && right.finite};
  };
  return tbb::parallel_deterministic_reduce(
      tbb::blocked_range<int64_t>(0, output.size(), kElementsPerTask), Squares{}, add, join);
}

Squares CompareStored(const HostOutput& output, const HostOutput& expected) {
  switch (output.dtype()) {
    case DType::kF16:
      return Compare<uint16_t>(output, expected, HalfBitsToFloat);
    case DType::kBF16:
      return Compare<uint16_t>(output, expected, Bf16BitsToFloat);
    case DType::kF32:
      break;
  }
  return Compare<float>(output, expected, [](float value) { return value; });
}

}  // namespace

absl::Status HostOutput::Copy(const Tensor& tensor, const ExecutionContext& context) {
  const TensorView& view = tensor.view();
  if (view.bytes() > capacity_) {
    bytes_.reset(new std::byte[view.bytes()]);
    capacity_ = view.bytes();
  }
  size_ = view.rows * view.channels;
  dtype_ = view.dtype;
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(bytes_.get(), MemorySpace::kHost, view.data,
                                                view.device.space, view.bytes(), *context.stream));
  return context.stream->Synchronize();
}

double RelativeError(const HostOutput& output, const HostOutput& expected) {
  constexpr double kNeverPasses = std::numeric_limits<double>::infinity();
  if (output.size() != expected.size() || output.dtype() != expected.dtype()) return kNeverPasses;
  const Squares sum = CompareStored(output, expected);
  if (!sum.finite) return kNeverPasses;
  if (sum.norm == 0) return sum.difference == 0 ? 0 : kNeverPasses;
  return std::sqrt(sum.difference / sum.norm);
}

}  // namespace voxconv::tune
