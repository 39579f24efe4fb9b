// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers and the clipping of gradients, against their formulas in fp64. Each step is
// computed from what the backend held before it, so that bounds are those of one step.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/operator_bench.h"

namespace voxconv::verify {
namespace {

constexpr int64_t kParameters = 37 * 1003;
constexpr int kStepsTaken = 4;
constexpr double kUnit = 0x1p-24;
constexpr float kScale = 1024;
constexpr StepRule kClips = {.max_norm = 30};

// Parameters, scaled gradients and an optimiser's arrays in the backend's memory.
struct StepArrays {
  Array<float> values, gradients, first, second;
  Array<StepState> state;
  Array<double> norm;

  static absl::StatusOr<StepArrays> Create(const Bench& bench) {
    const std::vector<float> zeros(kParameters);
    StepArrays arrays;
    VOXCONV_ASSIGN_OR_RETURN(arrays.values, bench.Vector(Values(kParameters, 81)));
    VOXCONV_ASSIGN_OR_RETURN(arrays.gradients, bench.Vector(zeros));
    VOXCONV_ASSIGN_OR_RETURN(arrays.first, bench.Vector(zeros));
    VOXCONV_ASSIGN_OR_RETURN(arrays.second, bench.Vector(zeros));
    const StepState state{.loss_scale = kScale};
    VOXCONV_ASSIGN_OR_RETURN(
        arrays.state, CopyToBackend<StepState>(absl::MakeConstSpan(&state, 1), bench.context()));
    VOXCONV_ASSIGN_OR_RETURN(arrays.norm, AllocateArray<double>(1, bench.context()));
    return arrays;
  }
  ParameterRange range() { return {kParameters, values.data(), gradients.data()}; }
};

// The same on the host, of one moment.
struct HostArrays {
  std::vector<float> values, first, second;

  static absl::StatusOr<HostArrays> Of(const StepArrays& arrays, const ExecutionContext& context) {
    HostArrays host;
    VOXCONV_ASSIGN_OR_RETURN(host.values, CopyToHost(arrays.values, context));
    VOXCONV_ASSIGN_OR_RETURN(host.first, CopyToHost(arrays.first, context));
    VOXCONV_ASSIGN_OR_RETURN(host.second, CopyToHost(arrays.second, context));
    return host;
  }
};

double NormOf(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

// Gradients of a step, scaled by kScale. Their norm is about 110 without the scale.
std::vector<float> ScaledGradients(int step) {
  std::vector<float> gradients = Values(kParameters, 90 + step);
  for (float& g : gradients) g *= kScale;
  return gradients;
}

// Puts them into the backend's memory and begins a step.
absl::Status Begin(const Bench& bench, const StepRule& rule, const std::vector<float>& gradients,
                   StepArrays& arrays) {
  VOXCONV_ASSIGN_OR_RETURN(arrays.gradients, bench.Vector(gradients));
  VOXCONV_RETURN_IF_ERROR(bench.ops().SquaredNorm(arrays.gradients.data(), kParameters,
                                                  arrays.norm.data(), bench.context()));
  return bench.ops().PrepareStep(rule, arrays.norm.data(), arrays.state.data(), bench.context());
}

// A step that the backend has taken, on the host.
struct TakenStep {
  std::vector<float> gradients;  // scaled
  double clip = 1;
  HostArrays before, after;

  double Gradient(int64_t parameter) const { return gradients[parameter] * clip / kScale; }
};

// Takes step `number` of an optimiser. `step` is an SgdStep or an AdamWStep.
template <typename Step>
absl::StatusOr<TakenStep> Take(const Bench& bench, const StepRule& rule, int number,
                               const Step& step, StepArrays& arrays) {
  TakenStep taken{.gradients = ScaledGradients(number)};
  VOXCONV_ASSIGN_OR_RETURN(taken.before, HostArrays::Of(arrays, bench.context()));
  VOXCONV_RETURN_IF_ERROR(Begin(bench, rule, taken.gradients, arrays));
  VOXCONV_RETURN_IF_ERROR(
      bench.ops().Step(step, arrays.range(), arrays.state.data(), bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(taken.after, HostArrays::Of(arrays, bench.context()));
  const double norm = NormOf(taken.gradients) / kScale;
  if (rule.max_norm > 0) taken.clip = std::min(1.0, rule.max_norm / norm);
  return taken;
}

// A number, and how far an honest step may be off.
struct Bounded {
  double value = 0, bound = 0;
};

absl::Status CheckBounded(absl::string_view what, const std::vector<float>& values,
                          const std::function<Bounded(int64_t)>& expected) {
  for (int64_t i = 0; i < kParameters; ++i) {
    const Bounded e = expected(i);
    if (std::abs(values[i] - e.value) <= e.bound) continue;  // a NaN fails
    return absl::InternalError(absl::StrCat(what, ": element ", i, " is ", values[i], "; expected ",
                                            e.value, ", at most ", e.bound, " off"));
  }
  return absl::OkStatus();
}

// v = momentum * v + g + decay * w. The momentum, the decay and the coefficient are rounded to f32,
// and each of two sums and a product is.
Bounded SgdVelocity(const SgdStep& step, double g, double w, double v) {
  const double magnitude =
      std::abs(g) + std::abs(step.weight_decay * w) + std::abs(step.momentum * v);
  return {step.momentum * v + g + step.weight_decay * w, 5 * kUnit * magnitude};
}

// `rule` clips the gradients, or not.
absl::Status Sgd(const Bench& bench, bool nesterov, const StepRule& rule) {
  VOXCONV_ASSIGN_OR_RETURN(StepArrays arrays, StepArrays::Create(bench));
  const SgdStep step{.rate = 0.1,
                     .momentum = 0.9,
                     .weight_decay = 0.01,
                     .nesterov = nesterov,
                     .velocity = arrays.first.data()};
  for (int i = 0; i < kStepsTaken; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const TakenStep taken, Take(bench, rule, i, step, arrays));
    const HostArrays &before = taken.before, &after = taken.after;
    const auto velocity = [&](int64_t p) {
      return SgdVelocity(step, taken.Gradient(p), before.values[p], before.first[p]);
    };
    const auto value = [&](int64_t p) {
      const double w = before.values[p];
      Bounded change = velocity(p);
      if (nesterov) {
        change = SgdVelocity(step, taken.Gradient(p), w, change.value);
        change.bound += step.momentum * velocity(p).bound;
      }
      const double moved = w - step.rate * change.value;
      return Bounded{moved, step.rate * (change.bound + 3 * kUnit * std::abs(change.value)) +
                                kUnit * std::abs(moved)};
    };
    VOXCONV_RETURN_IF_ERROR(CheckBounded("velocity", after.first, velocity));
    VOXCONV_RETURN_IF_ERROR(CheckBounded("value", after.values, value));
  }
  return absl::OkStatus();
}

// A running mean, beta * old + (1 - beta) * fresh. Each factor is rounded to f32.
Bounded RunningMean(double beta, double old, double fresh) {
  const double magnitude = beta * std::abs(old) + (1 - beta) * std::abs(fresh);
  return {beta * old + (1 - beta) * fresh, 6 * kUnit * magnitude};
}

absl::Status AdamW(const Bench& bench, const StepRule& rule) {
  VOXCONV_ASSIGN_OR_RETURN(StepArrays arrays, StepArrays::Create(bench));
  const AdamWStep step{.rate = 0.01,
                       .weight_decay = 0.1,
                       .first = arrays.first.data(),
                       .second = arrays.second.data()};
  for (int i = 0; i < kStepsTaken; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const TakenStep taken, Take(bench, rule, i, step, arrays));
    const HostArrays &before = taken.before, &after = taken.after;
    const auto first = [&](int64_t p) {
      return RunningMean(step.beta1, before.first[p], taken.Gradient(p));
    };
    const auto second = [&](int64_t p) {
      return RunningMean(step.beta2, before.second[p], Square(taken.Gradient(p)));
    };
    const auto value = [&](int64_t p) {
      const Bounded m = first(p), u = second(p);
      const double mean = m.value / (1 - std::pow(step.beta1, i + 1));
      const double root = std::sqrt(u.value / (1 - std::pow(step.beta2, i + 1)));
      const double kept = before.values[p] * (1 - step.rate * step.weight_decay);
      const double change = step.rate * mean / (root + step.epsilon);
      // To first order: the moments' relative errors, that of the root half, and six roundings.
      const double relative = m.bound / std::abs(m.value) + 0.5 * u.bound / u.value + 6 * kUnit;
      return Bounded{kept - change, std::abs(change) * relative * (1 + 0x1p-10) +
                                        3 * kUnit * std::abs(before.values[p])};
    };
    VOXCONV_RETURN_IF_ERROR(CheckBounded("first moment", after.first, first));
    VOXCONV_RETURN_IF_ERROR(CheckBounded("second moment", after.second, second));
    VOXCONV_RETURN_IF_ERROR(CheckBounded("value", after.values, value));
  }
  return absl::OkStatus();
}

// The norm, the coefficient that unscales and clips, and the counts of a step.
absl::Status Clip(const Bench& bench) {
  const std::vector<float> gradients = ScaledGradients(0);
  const double norm = NormOf(gradients) / kScale;
  for (const double max_norm : {0.0, 0.25 * norm, 2 * norm}) {
    VOXCONV_ASSIGN_OR_RETURN(StepArrays arrays, StepArrays::Create(bench));
    VOXCONV_RETURN_IF_ERROR(Begin(bench, {.max_norm = max_norm}, gradients, arrays));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<StepState> states,
                             CopyToHost(arrays.state, bench.context()));
    const StepState& state = states[0];
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / norm) : 1;
    const double coefficient = clip / kScale;
    if (std::abs(state.norm - norm) <= 1e-12 * norm &&
        std::abs(state.coefficient - coefficient) <= 2 * kUnit * coefficient &&
        state.skipped == 0 && state.steps == 1) {
      continue;
    }
    return absl::InternalError(absl::StrCat("max_norm ", max_norm, ": norm ", state.norm,
                                            ", coefficient ", state.coefficient, "; expected ",
                                            norm, " and ", coefficient));
  }
  return absl::OkStatus();
}

// A gradient that is not finite: the step changes nothing, and halves the scale.
absl::Status Skip(const Bench& bench) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    VOXCONV_ASSIGN_OR_RETURN(StepArrays arrays, StepArrays::Create(bench));
    std::vector<float> gradients = ScaledGradients(0);
    gradients[kParameters - 1] = bad;
    VOXCONV_ASSIGN_OR_RETURN(const HostArrays before, HostArrays::Of(arrays, bench.context()));
    VOXCONV_RETURN_IF_ERROR(Begin(bench, {.growth_interval = 10}, gradients, arrays));
    VOXCONV_RETURN_IF_ERROR(bench.ops().Step(SgdStep{.rate = 1, .velocity = arrays.first.data()},
                                             arrays.range(), arrays.state.data(), bench.context()));
    VOXCONV_RETURN_IF_ERROR(bench.ops().Step(
        AdamWStep{.rate = 1, .first = arrays.first.data(), .second = arrays.second.data()},
        arrays.range(), arrays.state.data(), bench.context()));
    VOXCONV_ASSIGN_OR_RETURN(const HostArrays after, HostArrays::Of(arrays, bench.context()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<StepState> states,
                             CopyToHost(arrays.state, bench.context()));
    if (after.values != before.values || after.first != before.first ||
        after.second != before.second) {
      return absl::InternalError(absl::StrCat("a step with the gradient ", bad, " changes values"));
    }
    if (states[0].skipped != 1 || states[0].loss_scale != kScale / 2) {
      return absl::InternalError(absl::StrCat("skipped ", states[0].skipped, ", loss scale ",
                                              states[0].loss_scale, "; expected 1 and ",
                                              kScale / 2));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddStepCases(Environment& environment, std::vector<Case>& cases) {
  if (environment.backend->training_ops() == nullptr) return;
  const std::pair<const char*, std::function<absl::Status(const Bench&)>> steps[] = {
      {"sgd", [](const Bench& b) { return Sgd(b, /*nesterov=*/false, {}); }},
      {"sgd_nesterov", [](const Bench& b) { return Sgd(b, /*nesterov=*/true, {}); }},
      {"sgd_clipped", [](const Bench& b) { return Sgd(b, /*nesterov=*/false, kClips); }},
      {"adamw", [](const Bench& b) { return AdamW(b, {}); }},
      {"adamw_clipped", [](const Bench& b) { return AdamW(b, kClips); }},
      {"clip", Clip},
      {"skip", Skip},
  };
  for (const auto& [name, check] : steps) {
    cases.push_back({absl::StrCat("step/", name), [&environment, check = check] {
                       return Outcome::From(
                           check(Bench(ContextOf(*environment.backend), Precision::kF32)));
                     }});
  }
}

}  // namespace voxconv::verify
