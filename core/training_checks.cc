// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/training_checks.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

struct NamedPointer {
  std::string name;
  const void* pointer;
};

// Refuses a null pointer among those of a range that has elements.
absl::Status CheckPointers(int64_t elements, std::initializer_list<NamedPointer> pointers) {
  if (elements == 0) return absl::OkStatus();
  for (const NamedPointer& named : pointers) {
    if (named.pointer != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(named.name, ": null"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view name, int64_t count) {
  if (count >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", count, "; it must be at least 0"));
}

// Refuses NaN and numbers outside [low, high), or [low, high] if `closed`.
absl::Status CheckRange(absl::string_view name, double value, double low, double high,
                        bool closed = false) {
  if (value >= low && (value < high || (closed && value == high))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value, "; allowed is [", low, ", ", high, closed ? "]" : ")"));
}

absl::Status CheckFinite(absl::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value, "; it must be finite and at least 0"));
}

absl::Status CheckParameters(const ParameterRange& parameters, const StepState* state) {
  VOXCONV_RETURN_IF_ERROR(CheckCount("step: size", parameters.size));
  return CheckPointers(parameters.size, {{"step: values", parameters.values},
                                         {"step: gradients", parameters.gradients},
                                         {"step: state", state}});
}

// What all losses take.
absl::Status CheckLoss(absl::string_view name, const ConstTensorView& logits, const int32_t* labels,
                       const TensorView& gradient, const LossResult* result,
                       const Backend& backend) {
  const TensorChecker tensors(logits.dtype, backend);
  if (logits.channels < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": classes: ", logits.channels, "; there must be at least 1"));
  }
  const int64_t rows = logits.rows, classes = logits.channels;
  VOXCONV_RETURN_IF_ERROR(tensors.Check(absl::StrCat(name, ": logits"), logits, rows, classes));
  VOXCONV_RETURN_IF_ERROR(tensors.Check(absl::StrCat(name, ": gradient"), gradient, rows, classes));
  VOXCONV_RETURN_IF_ERROR(CheckPointers(rows, {{absl::StrCat(name, ": labels"), labels}}));
  return CheckPointers(1, {{absl::StrCat(name, ": result"), result}});
}

}  // namespace

absl::Status CheckChannelMoments(const ConstTensorView& x, const float* mean,
                                 const float* deviation, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      TensorChecker(x.dtype, backend).Check("channel_moments: x", x, x.rows, x.channels));
  return CheckPointers(
      x.channels, {{"channel_moments: mean", mean}, {"channel_moments: deviation", deviation}});
}

absl::Status CheckMomentSums(const float* mean, const float* deviation, int64_t channels,
                             const double* sums) {
  VOXCONV_RETURN_IF_ERROR(CheckCount("moment_sums: channels", channels));
  VOXCONV_RETURN_IF_ERROR(CheckPointers(1, {{"moment_sums: sums", sums}}));
  return CheckPointers(channels,
                       {{"moment_sums: mean", mean}, {"moment_sums: deviation", deviation}});
}

absl::Status CheckBatchNormScale(const BatchNormBatch& batch) {
  VOXCONV_RETURN_IF_ERROR(CheckCount("batch_norm: channels", batch.channels));
  VOXCONV_RETURN_IF_ERROR(CheckCount("batch_norm: rows", batch.rows));
  VOXCONV_RETURN_IF_ERROR(CheckFinite("batch_norm: epsilon", batch.epsilon));
  VOXCONV_RETURN_IF_ERROR(CheckRange("batch_norm: momentum", batch.momentum, 0, 1, true));
  return CheckPointers(batch.channels, {{"batch_norm: mean", batch.mean},
                                        {"batch_norm: deviation", batch.deviation},
                                        {"batch_norm: gamma", batch.gamma},
                                        {"batch_norm: beta", batch.beta},
                                        {"batch_norm: inverse_std", batch.inverse_std},
                                        {"batch_norm: scale", batch.scale},
                                        {"batch_norm: shift", batch.shift}});
}

absl::Status CheckBatchNormGradSums(const BatchNormGradArgs& args, const Backend& backend) {
  const ConstTensorView& x = args.x;
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("batch_norm_grad: x", x, x.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("batch_norm_grad: dy", args.dy, x.rows, x.channels));
  if (args.y.data != nullptr) {
    VOXCONV_RETURN_IF_ERROR(tensors.Check("batch_norm_grad: y", args.y, x.rows, x.channels));
  }
  return CheckPointers(x.channels, {{"batch_norm_grad: mean", args.mean},
                                    {"batch_norm_grad: inverse_std", args.inverse_std},
                                    {"batch_norm_grad: sum_dy", args.sum_dy},
                                    {"batch_norm_grad: sum_dy_x", args.sum_dy_x}});
}

absl::Status CheckBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                     const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormGradSums(args, backend));
  VOXCONV_RETURN_IF_ERROR(CheckPointers(args.x.channels, {{"batch_norm_grad: gamma", args.gamma}}));
  if (args.shared_rows == nullptr && args.rows < args.x.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_norm_grad: rows: ", args.rows, "; x alone has ", args.x.rows));
  }
  return TensorChecker(args.x.dtype, backend)
      .Check("batch_norm_grad: dx", dx, args.x.rows, args.x.channels);
}

absl::Status CheckReluGrad(const ConstTensorView& y, const ConstTensorView& dy,
                           const TensorView& dx, const Backend& backend) {
  const TensorChecker tensors(y.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("relu_grad: y", y, y.rows, y.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("relu_grad: dy", dy, y.rows, y.channels));
  return tensors.Check("relu_grad: dx", dx, y.rows, y.channels);
}

absl::Status CheckSplit(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                        const Backend& backend) {
  const TensorChecker tensors(y.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("split: a", a, y.rows, a.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("split: b", b, y.rows, b.channels));
  return tensors.Check("split: y", y, y.rows, a.channels + b.channels);
}

absl::Status CheckColumnSums(const ConstTensorView& x, const float* sums, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      TensorChecker(x.dtype, backend).Check("column_sums: x", x, x.rows, x.channels));
  return CheckPointers(x.channels, {{"column_sums: sums", sums}});
}

absl::Status CheckLinearWeightGradient(const ConstTensorView& x, const ConstTensorView& dy,
                                       Precision precision, const TensorView& gradient,
                                       const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckPrecision("linear_weight_gradient", precision, x.dtype));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear_weight_gradient: x", x, x.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear_weight_gradient: dy", dy, x.rows, dy.channels));
  const TensorChecker results(gradient.dtype == DType::kF32 ? DType::kF32 : x.dtype, backend);
  return results.Check("linear_weight_gradient: gradient", gradient, x.channels, dy.channels);
}

absl::Status CheckSelect(const ConstTensorView& x, const int32_t* switches, const TensorView& y,
                         const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("select: x", x, x.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("select: y", y, y.rows, x.channels));
  return CheckPointers(y.rows * y.channels, {{"select: switches", switches}});
}

absl::Status CheckGlobalPoolGrad(int64_t rows, PoolMode mode, const ConstTensorView& x,
                                 const ConstTensorView& y, const ConstTensorView& dy,
                                 const TensorView& dx, const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool_grad: x", x, rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool_grad: y", y, y.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool_grad: dy", dy, y.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool_grad: dx", dx, rows, x.channels));
  if (mode != PoolMode::kAverage) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("global_pool_grad: mode ", ToString(mode),
                                                 "; allowed are sum, max and ",
                                                 ToString(PoolMode::kAveragePresent)));
}

absl::Status CheckDropout(const ConstTensorView& x, double rate, const TensorView& y,
                          const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckRange("dropout: rate", rate, 0, 1));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("dropout: x", x, x.rows, x.channels));
  return tensors.Check("dropout: y", y, x.rows, x.channels);
}

absl::Status CheckCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                               const LossResult* result, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      CheckLoss("cross_entropy", args.logits, args.labels, gradient, result, backend));
  return CheckRange("cross_entropy: smoothing", args.smoothing, 0, 1);
}

absl::Status CheckLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                                const LossResult* result, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      CheckLoss("lovasz_softmax", args.logits, args.labels, gradient, result, backend));
  if (args.logits.rows <= INT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lovasz_softmax: rows: ", args.logits.rows,
                                                 "; allowed are at most ", INT32_MAX));
}

absl::Status CheckSquaredNorm(const float* values, int64_t size, const double* norm) {
  VOXCONV_RETURN_IF_ERROR(CheckCount("squared_norm: size", size));
  VOXCONV_RETURN_IF_ERROR(CheckPointers(size, {{"squared_norm: values", values}}));
  return CheckPointers(1, {{"squared_norm: norm", norm}});
}

absl::Status CheckPrepareStep(const StepRule& rule, const double* squared_norm,
                              const StepState* state) {
  VOXCONV_RETURN_IF_ERROR(CheckFinite("prepare_step: max_norm", rule.max_norm));
  VOXCONV_RETURN_IF_ERROR(CheckCount("prepare_step: growth_interval", rule.growth_interval));
  VOXCONV_RETURN_IF_ERROR(CheckFinite("prepare_step: max_scale", rule.max_scale));
  VOXCONV_RETURN_IF_ERROR(
      CheckRange("prepare_step: min_scale", rule.min_scale, 0x1p-126, rule.max_scale, true));
  return CheckPointers(
      1, {{"prepare_step: squared_norm", squared_norm}, {"prepare_step: state", state}});
}

absl::Status CheckStep(const SgdStep& step, const ParameterRange& parameters,
                       const StepState* state) {
  VOXCONV_RETURN_IF_ERROR(CheckFinite("sgd: rate", step.rate));
  VOXCONV_RETURN_IF_ERROR(CheckRange("sgd: momentum", step.momentum, 0, 1));
  VOXCONV_RETURN_IF_ERROR(CheckFinite("sgd: weight_decay", step.weight_decay));
  VOXCONV_RETURN_IF_ERROR(CheckParameters(parameters, state));
  return CheckPointers(parameters.size, {{"sgd: velocity", step.velocity}});
}

absl::Status CheckStep(const AdamWStep& step, const ParameterRange& parameters,
                       const StepState* state) {
  VOXCONV_RETURN_IF_ERROR(CheckFinite("adamw: rate", step.rate));
  VOXCONV_RETURN_IF_ERROR(CheckRange("adamw: beta1", step.beta1, 0, 1));
  VOXCONV_RETURN_IF_ERROR(CheckRange("adamw: beta2", step.beta2, 0, 1));
  VOXCONV_RETURN_IF_ERROR(CheckFinite("adamw: epsilon", step.epsilon));
  VOXCONV_RETURN_IF_ERROR(CheckFinite("adamw: weight_decay", step.weight_decay));
  VOXCONV_RETURN_IF_ERROR(CheckParameters(parameters, state));
  return CheckPointers(parameters.size,
                       {{"adamw: first", step.first}, {"adamw: second", step.second}});
}

}  // namespace voxconv
