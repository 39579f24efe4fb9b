// SPDX-License-Identifier: Apache-2.0
// Gradients against those of the fp64 oracle, and the adjoint identities
// <dy, conv(x)> = <input_grad(dy), x> = <weight_grad(x, dy), w>.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/oracle.h"

namespace voxconv::verify {
namespace {

// What a layer is given, as the dtype holds it, and the oracle's map in both directions.
struct GradProblem {
  const Problem* problem;
  CaseShape shape;
  reference::ConvShape sizes;
  std::vector<float> x, w, dy;
  reference::KernelMap transposed;
};

// The pairs with inputs and outputs exchanged, each offset's by ascending output row.
reference::KernelMap Transposed(const reference::KernelMap& map) {
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

GradProblem MakeGradProblem(const Problem& problem, const CaseShape& shape) {
  GradProblem grad{.problem = &problem, .shape = shape};
  grad.sizes = {static_cast<int64_t>(problem.inputs.size()),
                static_cast<int64_t>(problem.outputs.size()), shape.c_in, shape.c_out};
  const int64_t weights = problem.geometry.num_offsets() * shape.c_in * shape.c_out;
  grad.x = RoundedTo(shape.precision, Values(grad.sizes.num_inputs * shape.c_in, 51));
  grad.w = RoundedTo(shape.precision, Values(weights, 52));
  grad.dy = RoundedTo(shape.precision, Values(grad.sizes.num_outputs * shape.c_out, 53));
  grad.transposed = Transposed(problem.map);
  return grad;
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

// The input gradient is a convolution of dy over the transposed map (H-CNN, Equation 8).
Expected ExpectedInputGrad(const GradProblem& grad, const Execution& execution) {
  const reference::ConvShape sizes{grad.sizes.num_outputs, grad.sizes.num_inputs, grad.shape.c_out,
                                   grad.shape.c_in};
  const ExactConvolution exact(grad.transposed,
                               {sizes, grad.shape.precision, grad.dy, TransposedWeights(grad)});
  return exact.Expect(execution);
}

template <typename Change>
std::vector<double> Changed(const std::vector<float>& values, const Change& change) {
  std::vector<double> changed(values.size());
  std::transform(values.begin(), values.end(), changed.begin(),
                 [&](float value) { return change(double{value}); });
  return changed;
}

// Element (k, ci, co) sums a product for each pair of offset k (H-CNN, Equation 7). Blocks of pairs
// may be summed for themselves, in f32.
Expected ExpectedWeightGrad(const GradProblem& grad) {
  constexpr int64_t kLeastBlock = 64;  // pairs
  const reference::KernelMap& map = grad.problem->map;
  const auto absolute = [](double value) { return std::abs(value); };
  const auto square = [](double value) { return value * value; };
  Expected expected{.channels = grad.shape.c_out};
  expected.values = reference::BackwardWeight(map, grad.sizes, grad.x, grad.dy);
  const std::vector<double> magnitudes = reference::BackwardWeight(
      map, grad.sizes, Changed(grad.x, absolute), Changed(grad.dy, absolute));
  const std::vector<double> squares =
      reference::BackwardWeight(map, grad.sizes, Changed(grad.x, square), Changed(grad.dy, square));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const auto k = static_cast<int64_t>(i) / (grad.shape.c_in * grad.shape.c_out);
    const int64_t pairs = map.offset_ptr[k + 1] - map.offset_ptr[k];
    const ExactSum sum{.value = expected.values[i],
                       .magnitude = magnitudes[i],
                       .spread = std::sqrt(squares[i]),
                       .pairs = (pairs + kLeastBlock - 1) / kLeastBlock};
    expected.tolerances.push_back(StoredTolerance(
        grad.shape.precision, sum.value,
        SumTolerance(grad.shape.precision, sum, std::min(pairs, kLeastBlock), false)));
  }
  return expected;
}

// The layer's tensors in the backend's memory.
struct GradTensors {
  Tensor x, w, dy;

  static absl::StatusOr<GradTensors> Create(const GradProblem& grad,
                                            const ExecutionContext& context) {
    const DType dtype = StorageOf(grad.shape.precision);
    const int64_t c_in = grad.shape.c_in, c_out = grad.shape.c_out;
    GradTensors tensors;
    VOXCONV_ASSIGN_OR_RETURN(tensors.x,
                             Tensor::FromHost(grad.x, grad.sizes.num_inputs, c_in, context, dtype));
    VOXCONV_ASSIGN_OR_RETURN(
        tensors.w, Tensor::FromHost(grad.w, static_cast<int64_t>(grad.w.size()) / c_out, c_out,
                                    context, dtype));
    VOXCONV_ASSIGN_OR_RETURN(
        tensors.dy, Tensor::FromHost(grad.dy, grad.sizes.num_outputs, c_out, context, dtype));
    return tensors;
  }
};

// A tensor full of NaN: an element that is left out shows.
absl::StatusOr<Tensor> NanLike(const Tensor& tensor, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor nan, Tensor::Create(tensor.rows(), tensor.channels(), tensor.view().dtype, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(nan.view().data, 0xff, nan.view().bytes(), *context.stream));
  return nan;
}

absl::StatusOr<std::vector<float>> InputGrad(const Dataflow& dataflow, const KernelMap& map,
                                             const GradProblem& grad,
                                             const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const GradTensors tensors, GradTensors::Create(grad, context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, NanLike(tensors.x, context));
  Workspace workspace;
  VOXCONV_RETURN_IF_ERROR(RunInputGrad(dataflow, map,
                                       {tensors.dy.view(), tensors.w.view(), dx.view()},
                                       grad.shape.precision, workspace, context));
  return dx.ToHost(context);
}

absl::StatusOr<std::vector<float>> WeightGrad(const Dataflow& dataflow, const KernelMap& map,
                                              const GradProblem& grad,
                                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const GradTensors tensors, GradTensors::Create(grad, context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dw, NanLike(tensors.w, context));
  Workspace workspace;
  VOXCONV_RETURN_IF_ERROR(RunWeightGrad(dataflow, map,
                                        {tensors.x.view(), tensors.dy.view(), dw.view()},
                                        grad.shape.precision, workspace, context));
  return dw.ToHost(context);
}

double Product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// How far <output, other> may be off if every element of `output` is off by its tolerance.
double ProductBound(const Expected& expected, const std::vector<float>& other) {
  double bound = 0;
  for (size_t i = 0; i < other.size(); ++i) {
    bound += expected.tolerances[i].element * std::abs(other[i]);
  }
  return bound;
}

absl::Status CheckAdjoint(const Dataflow& dataflow, const KernelMap& map, const GradProblem& grad,
                          const ConvShape& shape, const ExecutionContext& context) {
  const ExactConvolution exact(grad.problem->map,
                               {grad.sizes, grad.shape.precision, grad.x, grad.w});
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> y,
                           Convolve(dataflow, map, exact.operands(), context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dx, InputGrad(dataflow, map, grad, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dw, WeightGrad(dataflow, map, grad, context));
  const double forward = Product(grad.dy, y);
  const double forward_bound = ProductBound(exact.Expect(ExecutionOf(dataflow, shape)), grad.dy);
  const Execution input_grad{
      .rounds_partial_sums = dataflow.CapabilityOf(Pass::kInputGrad, shape).rounds_partial_sums};
  const std::pair<double, double> inputs{Product(dx, grad.x),
                                         ProductBound(ExpectedInputGrad(grad, input_grad), grad.x)};
  const std::pair<double, double> weights{Product(dw, grad.w),
                                          ProductBound(ExpectedWeightGrad(grad), grad.w)};
  for (const auto& [product, bound] : {inputs, weights}) {
    // Written so that a NaN fails.
    if (std::abs(product - forward) <= bound + forward_bound) continue;
    return absl::InternalError(absl::StrCat("<dy, y> is ", forward, " and <dx, x> = ", inputs.first,
                                            ", <dw, w> = ", weights.first, "; they may differ by ",
                                            bound + forward_bound));
  }
  return absl::OkStatus();
}

enum class GradCheck { kInput, kWeight, kAdjoint };

absl::Status Check(GradCheck check, const Dataflow& dataflow, const GradProblem& grad,
                   const ConvShape& shape, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, UploadReferenceMap(*grad.problem, context));
  if (check == GradCheck::kAdjoint) return CheckAdjoint(dataflow, map, grad, shape, context);
  if (check == GradCheck::kInput) {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dx, InputGrad(dataflow, map, grad, context));
    const Capability capability = dataflow.CapabilityOf(Pass::kInputGrad, shape);
    return CheckOutput(
        dx, ExpectedInputGrad(grad, {.rounds_partial_sums = capability.rounds_partial_sums}));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dw, WeightGrad(dataflow, map, grad, context));
  return CheckOutput(dw, ExpectedWeightGrad(grad));
}

Outcome RunGradCase(const Environment& environment, GradCheck check, const std::string& spec,
                    const CaseShape& shape, const Problem& problem) {
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const ConvShape layer = ShapeOfLayer(problem.geometry, shape.c_in, shape.c_out, shape.precision);
  for (const Pass pass : kAllPasses) {
    const Support support = (*dataflow)->Supports(pass, layer);
    if (!support.ok) return Outcome::Unsupported(support, ToString(pass));
  }
  return Outcome::From(Check(check, **dataflow, MakeGradProblem(problem, shape), layer,
                             ContextOf(*environment.backend)));
}

// Both gradients again and again, on one thread and on several, where the dataflow claims that it
// gives the same bits.
Outcome RunRepeatCase(const Environment& environment, Pass pass, const std::string& spec,
                      const CaseShape& shape, const Problem& problem) {
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const ConvShape layer = ShapeOfLayer(problem.geometry, shape.c_in, shape.c_out, shape.precision);
  const Capability capability = (*dataflow)->CapabilityOf(pass, layer);
  if (!capability.support.ok) return Outcome::Unsupported(capability.support, ToString(pass));
  if (!capability.deterministic) return Outcome::Skipped("does not claim to be deterministic");
  const GradProblem grad = MakeGradProblem(problem, shape);
  const int repeats = environment.backend->kind() == BackendKind::kCuda ? 20 : 4;
  std::vector<float> first;
  for (Backend* backend : {environment.serial, environment.parallel}) {
    const ExecutionContext context = ContextOf(*backend);
    const absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    for (int i = 0; i < repeats; ++i) {
      const auto gradient = pass == Pass::kInputGrad ? InputGrad(**dataflow, *map, grad, context)
                                                     : WeightGrad(**dataflow, *map, grad, context);
      if (!gradient.ok()) return Outcome::From(gradient.status());
      if (first.empty()) first = *gradient;
      if (gradient->size() == first.size() &&
          std::memcmp(gradient->data(), first.data(), first.size() * sizeof(float)) == 0) {
        continue;
      }
      return Outcome::Failed(absl::StrCat("run ", i, " on ", backend->DeviceName(),
                                          " differs bitwise from the first"));
    }
  }
  return Outcome::Passed();
}

void AddRepeatGradCases(Environment& environment, std::vector<Case>& cases) {
  for (const char* geometry : {"submanifold_k3", "quantize_k3_s2"}) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    const auto add = [&](const std::string& spec, const CaseShape& shape) {
      for (const Pass pass : {Pass::kInputGrad, Pass::kWeightGrad}) {
        cases.push_back({absl::StrCat("repeat/conv/", spec, "/", ShapeName(shape), "/",
                                      ToString(pass), "/", problem->id),
                         [&environment, pass, spec, shape, problem] {
                           return RunRepeatCase(environment, pass, spec, shape, *problem);
                         }});
      }
    };
    ForEachClaimedShape(environment, {{33, 17}, {64, 64}}, add);
  }
}

}  // namespace

void AddGradCases(Environment& environment, std::vector<Case>& cases) {
  AddRepeatGradCases(environment, cases);
  const std::pair<GradCheck, const char*> checks[] = {{GradCheck::kInput, "input"},
                                                      {GradCheck::kWeight, "weight"},
                                                      {GradCheck::kAdjoint, "adjoint"}};
  for (const std::string& geometry : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    const auto add = [&](const std::string& spec, const CaseShape& shape) {
      for (const auto& [check, name] : checks) {
        cases.push_back(
            {absl::StrCat("grad/conv/", spec, "/", ShapeName(shape), "/", name, "/", problem->id),
             [&environment, check = check, spec, shape, problem] {
               return RunGradCase(environment, check, spec, shape, *problem);
             }});
      }
    };
    ForEachClaimedShape(environment, {{3, 16}, {33, 17}, {64, 32}}, add);
  }
}

}  // namespace voxconv::verify
