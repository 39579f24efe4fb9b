// SPDX-License-Identifier: Apache-2.0
// Gradients against those of the fp64 oracle, and the adjoint identities
// <dy, conv(x)> = <input_grad(dy), x> = <weight_grad(x, dy), w>.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gradients.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/oracle.h"

namespace voxconv::verify {
namespace {

// The input gradient and its tolerances.
Expected ExpectedInputGrad(const GradProblem& grad, const Execution& execution) {
  return ExactConvolution(grad.transposed, InputGradOperands(grad)).Expect(execution);
}

// The weight gradient, stored as the weights are.
Expected StoredWeightGrad(const GradProblem& grad) {
  const Precision precision = grad.shape.precision;
  return ExpectedWeightGrad(
      {grad.problem->map, grad.sizes, precision, /*stored=*/precision, grad.x, grad.dy});
}

absl::StatusOr<std::vector<float>> GradientOnHost(Pass pass, const Dataflow& dataflow,
                                                  const KernelMap& map, const GradProblem& grad,
                                                  const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const GradTensors tensors, GradTensors::Create(grad, context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor gradient,
                           RunGradient(pass, dataflow, map, tensors, grad.shape.precision,
                                       StorageOf(grad.shape.precision), context));
  return gradient.ToHost(context);
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
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dx,
                           GradientOnHost(Pass::kInputGrad, dataflow, map, grad, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dw,
                           GradientOnHost(Pass::kWeightGrad, dataflow, map, grad, context));
  const double forward = Product(grad.dy, y);
  const double forward_bound = ProductBound(exact.Expect(ExecutionOf(dataflow, shape)), grad.dy);
  const Execution input_grad{
      .rounds_partial_sums = dataflow.CapabilityOf(Pass::kInputGrad, shape).rounds_partial_sums};
  const std::pair<double, double> inputs{Product(dx, grad.x),
                                         ProductBound(ExpectedInputGrad(grad, input_grad), grad.x)};
  const std::pair<double, double> weights{Product(dw, grad.w),
                                          ProductBound(StoredWeightGrad(grad), grad.w)};
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
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dx,
                             GradientOnHost(Pass::kInputGrad, dataflow, map, grad, context));
    const Capability capability = dataflow.CapabilityOf(Pass::kInputGrad, shape);
    return CheckOutput(
        dx, ExpectedInputGrad(grad, {.rounds_partial_sums = capability.rounds_partial_sums}));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> dw,
                           GradientOnHost(Pass::kWeightGrad, dataflow, map, grad, context));
  return CheckOutput(dw, StoredWeightGrad(grad));
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
      const auto gradient = GradientOnHost(pass, **dataflow, *map, grad, context);
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

// What each dataflow's default options are checked on besides: the other geometries, and scenes of
// no voxel, of one, in any order, of a cluster and of surfaces.
std::vector<const Problem*> OtherProblems(Environment& environment) {
  const std::vector<std::string> kinds = GeometryOfEachKind();
  std::vector<const Problem*> problems;
  const auto add = [&](const NamedGeometry& geometry, const Scene& scene) {
    const Problem* problem = environment.problems.Get(geometry, scene);
    if (problem != nullptr) problems.push_back(problem);
  };
  for (const NamedGeometry& geometry : Geometries()) {
    if (std::find(kinds.begin(), kinds.end(), geometry.name) == kinds.end()) {
      add(geometry, Scenes()[1]);
    }
  }
  for (const Scene& scene : Scenes()) {
    if (scene.name == Scenes()[1].name || scene.huge_bounds) continue;
    for (const std::string& kind : kinds) add(GeometryNamed(kind), scene);
  }
  return problems;
}

}  // namespace

void AddGradCases(Environment& environment, std::vector<Case>& cases) {
  AddRepeatGradCases(environment, cases);
  const std::pair<GradCheck, const char*> checks[] = {{GradCheck::kInput, "input"},
                                                      {GradCheck::kWeight, "weight"},
                                                      {GradCheck::kAdjoint, "adjoint"}};
  const auto add = [&](const Problem* problem, const std::string& spec, const CaseShape& shape) {
    for (const auto& [check, name] : checks) {
      cases.push_back(
          {absl::StrCat("grad/conv/", spec, "/", ShapeName(shape), "/", name, "/", problem->id),
           [&environment, check = check, spec, shape, problem] {
             return RunGradCase(environment, check, spec, shape, *problem);
           }});
    }
  };
  for (const std::string& geometry : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    ForEachClaimedShape(
        environment, {{3, 16}, {33, 17}, {64, 32}},
        [&](const std::string& spec, const CaseShape& shape) { add(problem, spec, shape); });
  }
  for (const Problem* problem : OtherProblems(environment)) {
    for (const std::string& spec :
         environment.registry->dataflows().Variants(environment.backend->kind())) {
      if (absl::StrContains(spec, ':')) continue;
      ForEachClaimedPrecision(environment, spec, 16, 24, [&](Precision precision) {
        add(problem, spec, {16, 24, precision});
      });
    }
  }
}

}  // namespace voxconv::verify
