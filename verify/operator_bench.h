// SPDX-License-Identifier: Apache-2.0
// What cases of operators without a kernel map share: data, tensors and bounds.
#ifndef VOXCONV_VERIFY_OPERATOR_BENCH_H_
#define VOXCONV_VERIFY_OPERATOR_BENCH_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {

// One number: what it should be, and what its terms add up to without their signs.
struct Expectation {
  double value = 0, magnitude = 0;
};

// The operators of a backend in one precision, and data for them.
class Bench {
 public:
  Bench(const ExecutionContext& context, Precision precision)
      : context_(context), precision_(precision), ops_(*context.backend->training_ops()) {}

  const ExecutionContext& context() const { return context_; }
  Precision precision() const { return precision_; }
  TrainingOps& ops() const { return ops_; }
  TensorOps& dense() const { return context_.backend->tensor_ops(); }

  // Random values as the dtype holds them.
  std::vector<float> Random(int64_t size, uint64_t seed) const {
    return RoundedTo(precision_, Values(size, seed));
  }
  absl::StatusOr<Tensor> Upload(const std::vector<float>& values, int64_t channels) const {
    const auto rows = static_cast<int64_t>(values.size()) / channels;
    return Tensor::FromHost(values, rows, channels, context_, StorageOf(precision_));
  }
  // NaN, so that an element that is not written is seen.
  absl::StatusOr<Tensor> Result(int64_t rows, int64_t channels) const {
    return Upload(std::vector<float>(rows * channels, std::numeric_limits<float>::quiet_NaN()),
                  channels);
  }
  absl::StatusOr<Array<float>> Vector(const std::vector<float>& values) const {
    return CopyToBackend<float>(values, context_);
  }

  // Every element within the rounding of its store, and `loss` of its magnitude.
  absl::Status Compare(absl::string_view what, const std::vector<float>& values,
                       const std::vector<Expectation>& expected, double loss,
                       bool stored = true) const {
    if (values.size() != expected.size()) return absl::InternalError("sizes differ");
    const double unit = stored ? StorageUnit(precision_) : 0;
    const bool is_f16 = stored && StorageOf(precision_) == DType::kF16;
    for (size_t i = 0; i < values.size(); ++i) {
      const Expectation& e = expected[i];
      const double bound = unit * std::abs(e.value) + loss * e.magnitude + (is_f16 ? 0x1p-25 : 0);
      if (std::abs(values[i] - e.value) <= bound) continue;  // a NaN fails
      return absl::InternalError(absl::StrCat(what, ": element ", i, " is ", values[i],
                                              "; expected ", e.value, ", at most ", bound, " off"));
    }
    return absl::OkStatus();
  }

 private:
  ExecutionContext context_;
  Precision precision_;
  TrainingOps& ops_;
};

// What adding so many terms in f32 may lose of their magnitude (verify/bounds.h).
inline double LossOfSum(int64_t terms) {
  return (2 + 6 * std::sqrt(static_cast<double>(terms))) * 0x1p-24;
}

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_OPERATOR_BENCH_H_
