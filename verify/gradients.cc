// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/gradients.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "voxconv/core/status_macros.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// The pairs with inputs and outputs exchanged, each offset's by ascending output row.
reference::KernelMap TransposedPairs(const reference::KernelMap& map) {
  reference::KernelMap transposed{map.num_offsets, map.offset_ptr, map.out, map.in};
  for (int64_t k = 0; k < map.num_offsets; ++k) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      pairs.emplace_back(map.in[i], map.out[i]);
    }
    std::sort(pairs.begin(), pairs.end());
    for (size_t i = 0; i < pairs.size(); ++i) {
      transposed.out[map.offset_ptr[k] + i] = pairs[i].first;
      transposed.in[map.offset_ptr[k] + i] = pairs[i].second;
    }
  }
  return transposed;
}

// [K * C_out, C_in] of [K * C_in, C_out].
std::vector<float> TransposedWeights(const GradProblem& grad) {
  const int64_t c_in = grad.shape.c_in, c_out = grad.shape.c_out, matrix = c_in * c_out;
  std::vector<float> transposed(grad.w.size());
  for (int64_t i = 0; i < static_cast<int64_t>(grad.w.size()); ++i) {
    const int64_t k = i / matrix, ci = i % matrix / c_out, co = i % c_out;
    transposed[k * matrix + co * c_in + ci] = grad.w[i];
  }
  return transposed;
}

template <typename Change>
std::vector<double> ChangedTerms(const std::vector<float>& values, const Change& change) {
  std::vector<double> changed(values.size());
  std::transform(values.begin(), values.end(), changed.begin(),
                 [&](float value) { return change(double{value}); });
  return changed;
}

absl::StatusOr<Tensor> NanMatrixLike(const Tensor& tensor, DType dtype,
                                     const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Tensor nan,
                           Tensor::Create(tensor.rows(), tensor.channels(), dtype, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(nan.view().data, 0xff, nan.view().bytes(), *context.stream));
  return nan;
}

}  // namespace

GradProblem MakeGradProblem(const Problem& problem, const CaseShape& shape) {
  GradProblem grad{.problem = &problem, .shape = shape};
  grad.sizes = {static_cast<int64_t>(problem.inputs.size()),
                static_cast<int64_t>(problem.outputs.size()), shape.c_in, shape.c_out};
  const int64_t weights = problem.geometry.num_offsets() * shape.c_in * shape.c_out;
  grad.x = RoundedTo(shape.precision, Values(grad.sizes.num_inputs * shape.c_in, 51));
  grad.w = RoundedTo(shape.precision, Values(weights, 52));
  grad.dy = RoundedTo(shape.precision, Values(grad.sizes.num_outputs * shape.c_out, 53));
  grad.transposed = TransposedPairs(problem.map);
  return grad;
}

Operands InputGradOperands(const GradProblem& grad) {
  const reference::ConvShape sizes{grad.sizes.num_outputs, grad.sizes.num_inputs, grad.shape.c_out,
                                   grad.shape.c_in};
  return {sizes, grad.shape.precision, grad.dy, TransposedWeights(grad)};
}

// Element (k, ci, co) sums a product for each pair of offset k (H-CNN, Equation 7). Blocks of pairs
// may be summed for themselves, in f32.
Expected ExpectedWeightGrad(const WeightGradSums& sums) {
  constexpr int64_t kLeastBlock = 64;  // pairs
  const reference::KernelMap& map = sums.map;
  const auto absolute = [](double value) { return std::abs(value); };
  const auto square = [](double value) { return value * value; };
  Expected expected{.channels = sums.sizes.c_out};
  expected.values = reference::BackwardWeight(map, sums.sizes, sums.x, sums.dy);
  const std::vector<double> magnitudes = reference::BackwardWeight(
      map, sums.sizes, ChangedTerms(sums.x, absolute), ChangedTerms(sums.dy, absolute));
  const std::vector<double> squares = reference::BackwardWeight(
      map, sums.sizes, ChangedTerms(sums.x, square), ChangedTerms(sums.dy, square));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const auto k = static_cast<int64_t>(i) / (sums.sizes.c_in * sums.sizes.c_out);
    const int64_t pairs = map.offset_ptr[k + 1] - map.offset_ptr[k];
    const ExactSum sum{.value = expected.values[i],
                       .magnitude = magnitudes[i],
                       .spread = std::sqrt(squares[i]),
                       .pairs = (pairs + kLeastBlock - 1) / kLeastBlock};
    expected.tolerances.push_back(
        StoredTolerance(sums.stored, sum.value,
                        SumTolerance(sums.precision, sum, std::min(pairs, kLeastBlock), false)));
  }
  return expected;
}

absl::StatusOr<GradTensors> GradTensors::Create(const GradProblem& grad,
                                                const ExecutionContext& context) {
  const DType dtype = StorageOf(grad.shape.precision);
  const int64_t c_in = grad.shape.c_in, c_out = grad.shape.c_out;
  GradTensors tensors;
  VOXCONV_ASSIGN_OR_RETURN(tensors.x,
                           Tensor::FromHost(grad.x, grad.sizes.num_inputs, c_in, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(
      tensors.w,
      Tensor::FromHost(grad.w, static_cast<int64_t>(grad.w.size()) / c_out, c_out, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(
      tensors.dy, Tensor::FromHost(grad.dy, grad.sizes.num_outputs, c_out, context, dtype));
  return tensors;
}

absl::StatusOr<Tensor> RunGradient(Pass pass, const Dataflow& dataflow, const KernelMap& map,
                                   const GradTensors& tensors, Precision precision,
                                   DType weights_grad, const ExecutionContext& context) {
  Workspace workspace;
  if (pass == Pass::kInputGrad) {
    VOXCONV_ASSIGN_OR_RETURN(Tensor dx, NanMatrixLike(tensors.x, tensors.x.view().dtype, context));
    VOXCONV_RETURN_IF_ERROR(RunInputGrad(dataflow, map,
                                         {tensors.dy.view(), tensors.w.view(), dx.view()},
                                         precision, workspace, context));
    return dx;
  }
  VOXCONV_ASSIGN_OR_RETURN(Tensor dw, NanMatrixLike(tensors.w, weights_grad, context));
  VOXCONV_RETURN_IF_ERROR(RunWeightGrad(dataflow, map,
                                        {tensors.x.view(), tensors.dy.view(), dw.view()}, precision,
                                        workspace, context));
  return dw;
}

}  // namespace voxconv::verify
