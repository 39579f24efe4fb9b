// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a training step for one element, which every backend shares.
#ifndef VOXCONV_CORE_TRAINING_STEP_H_
#define VOXCONV_CORE_TRAINING_STEP_H_

#include <cmath>
#include <cstdint>

#include "voxconv/core/training_ops.h"

#ifdef __CUDACC__
#define VOXCONV_HOST_DEVICE __host__ __device__
#else
#define VOXCONV_HOST_DEVICE
#endif

namespace voxconv {

// TrainingOps::PrepareStep. `squared_norm` is that of the scaled gradients.
VOXCONV_HOST_DEVICE inline void BeginStep(const StepRule& rule, double squared_norm,
                                          StepState& state) {
  const float scale = state.loss_scale;
  const bool finite = squared_norm >= 0 && squared_norm <= 1.7976931348623157e308;
  state.norm = sqrt(squared_norm) / scale;
  state.skipped = finite ? 0 : 1;
  if (!finite) {
    ++state.skipped_steps;
    state.good_steps = 0;
    if (rule.growth_interval > 0) state.loss_scale = fmaxf(scale * 0.5f, rule.min_scale);
    return;
  }
  const bool clips = rule.max_norm > 0 && state.norm > rule.max_norm;
  state.coefficient = static_cast<float>((clips ? rule.max_norm / state.norm : 1.0) / scale);
  ++state.steps;
  if (rule.growth_interval == 0 || ++state.good_steps < rule.growth_interval) return;
  state.good_steps = 0;
  state.loss_scale = fminf(scale * 2.0f, rule.max_scale);
}

// Of an SgdStep or an AdamWStep.
template <typename StepArgs>
VOXCONV_HOST_DEVICE double RateOf(const StepArgs& step) {
  return step.shared_rate == nullptr ? step.rate : *step.shared_rate;
}

class SgdRule {
 public:
  VOXCONV_HOST_DEVICE SgdRule(const SgdStep& step, const StepState& state)
      : rate_(static_cast<float>(RateOf(step))),
        momentum_(static_cast<float>(step.momentum)),
        decay_(static_cast<float>(step.weight_decay)),
        coefficient_(state.coefficient),
        nesterov_(step.nesterov) {}

  VOXCONV_HOST_DEVICE void Apply(float gradient, float& value, float& velocity) const {
    const float g = fmaf(decay_, value, gradient * coefficient_);
    velocity = fmaf(momentum_, velocity, g);
    value -= rate_ * (nesterov_ ? fmaf(momentum_, velocity, g) : velocity);
  }

 private:
  float rate_, momentum_, decay_, coefficient_;
  bool nesterov_;
};

class AdamWRule {
 public:
  VOXCONV_HOST_DEVICE AdamWRule(const AdamWStep& step, const StepState& state)
      : beta1_(static_cast<float>(step.beta1)),
        beta2_(static_cast<float>(step.beta2)),
        // In f64: 1 - 0.999f is 1.3e-5 off 0.001.
        gain1_(static_cast<float>(1.0 - step.beta1)),
        gain2_(static_cast<float>(1.0 - step.beta2)),
        epsilon_(static_cast<float>(step.epsilon)),
        kept_(static_cast<float>(1.0 - RateOf(step) * step.weight_decay)),
        coefficient_(state.coefficient) {
    const auto steps = static_cast<double>(state.steps);
    rate_ = static_cast<float>(RateOf(step) / (1.0 - pow(step.beta1, steps)));
    correction_ = static_cast<float>(1.0 / (1.0 - pow(step.beta2, steps)));
  }

  VOXCONV_HOST_DEVICE void Apply(float gradient, float& value, float& first, float& second) const {
    const float g = gradient * coefficient_;
    first = beta1_ * first + gain1_ * g;
    second = beta2_ * second + gain2_ * g * g;
    value = value * kept_ - rate_ * first / (sqrtf(second * correction_) + epsilon_);
  }

 private:
  float rate_, beta1_, beta2_, gain1_, gain2_, epsilon_, kept_, coefficient_, correction_;
};

// The finaliser of SplitMix64 (Steele et al., 2014): every bit of the result depends on every bit.
VOXCONV_HOST_DEVICE inline uint64_t MixBits(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// The seed of one dropout layer in one step of a training.
inline uint64_t DropoutSeed(uint64_t seed, int64_t step, int layer) {
  return MixBits(MixBits(MixBits(seed) + static_cast<uint64_t>(step)) +
                 static_cast<uint64_t>(layer));
}

// Whether dropout keeps element `position`: a hash of it is uniform in [0, 2^32). Of every 2^32
// elements, `kept_below` stay.
VOXCONV_HOST_DEVICE inline bool DropoutKeeps(uint64_t seed, uint64_t position,
                                             uint64_t kept_below) {
  return (MixBits(seed + (position + 1) * 0x9e3779b97f4a7c15ull) >> 32) < kept_below;
}

// `kept_below` for a rate.
inline uint64_t DropoutKeptBelow(double rate) {
  return static_cast<uint64_t>(std::llround((1.0 - rate) * 4294967296.0));
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_TRAINING_STEP_H_
