// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <new>
#include <type_traits>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_optimizer.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/training_checks.h"
#include "voxconv/core/training_step.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kWide = 4;  // f32 values of 16 bytes
// Partial sums of a norm. A constant, so that the sum is the same on every device.
constexpr int64_t kMostSums = 1024;

// The sum over the threads of a block, for thread 0, in a fixed order.
__device__ double BlockSum(double value) {
  using Reduce = cub::BlockReduce<double, kBlock>;
  __shared__ typename Reduce::TempStorage storage;
  return Reduce(storage).Sum(value);
}

__device__ double Square(float value) { return static_cast<double>(value) * value; }

// Packs of V values first, then the values that fill no pack.
template <int V>
__global__ void __launch_bounds__(kBlock)
    SumSquares(const float* values, int64_t size, double* partial) {
  const auto* packs = reinterpret_cast<const Pack<float, V>*>(values);
  const int64_t count = size / V, threads = int64_t{gridDim.x} * kBlock;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = GlobalThread(); i < count; i += threads) {
    const Pack<float, V> pack = packs[i];
    for (int j = 0; j < V; ++j) sum += Square(pack.v[j]);
  }
  for (int64_t i = count * V + GlobalThread(); i < size; i += threads) sum += Square(values[i]);
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlock)
    AddPartialSums(const double* partial, int64_t count, double* sum) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) own += partial[i];
  own = BlockSum(own);
  if (threadIdx.x == 0) *sum = own;
}

__global__ void Prepare(StepRule rule, const double* squared_norm, StepState* state) {
  BeginStep(rule, *squared_norm, *state);
}

// The arrays that a step changes, beside the parameters.
struct SgdArrays {
  float* velocity;
};
struct AdamWArrays {
  float *first, *second;
};

// V parameters from `at` on.
template <int V>
__device__ Pack<float, V> LoadPack(const float* from, int64_t at) {
  return *reinterpret_cast<const Pack<float, V>*>(from + at);
}
template <int V>
__device__ void StorePack(const Pack<float, V>& pack, float* to, int64_t at) {
  *reinterpret_cast<Pack<float, V>*>(to + at) = pack;
}

template <int V>
__device__ void ApplyAt(const SgdRule& rule, const ParameterRange& parameters,
                        const SgdArrays& arrays, int64_t at) {
  const Pack<float, V> gradients = LoadPack<V>(parameters.gradients, at);
  Pack<float, V> values = LoadPack<V>(parameters.values, at);
  Pack<float, V> velocity = LoadPack<V>(arrays.velocity, at);
  for (int i = 0; i < V; ++i) rule.Apply(gradients.v[i], values.v[i], velocity.v[i]);
  StorePack(values, parameters.values, at);
  StorePack(velocity, arrays.velocity, at);
}

template <int V>
__device__ void ApplyAt(const AdamWRule& rule, const ParameterRange& parameters,
                        const AdamWArrays& arrays, int64_t at) {
  const Pack<float, V> gradients = LoadPack<V>(parameters.gradients, at);
  Pack<float, V> values = LoadPack<V>(parameters.values, at);
  Pack<float, V> first = LoadPack<V>(arrays.first, at);
  Pack<float, V> second = LoadPack<V>(arrays.second, at);
  for (int i = 0; i < V; ++i) {
    rule.Apply(gradients.v[i], values.v[i], first.v[i], second.v[i]);
  }
  StorePack(values, parameters.values, at);
  StorePack(first, arrays.first, at);
  StorePack(second, arrays.second, at);
}

template <typename Rule, int V, typename StepArgs, typename Arrays>
__global__ void __launch_bounds__(kBlock)
    ApplyRule(StepArgs step, ParameterRange parameters, Arrays arrays, const StepState* state) {
  static_assert(std::is_trivially_copyable_v<Rule>);
  if (state->skipped != 0) return;
  // One thread makes the rule, because powers in f64 take long.
  __shared__ alignas(Rule) unsigned char room[sizeof(Rule)];
  if (threadIdx.x == 0) new (room) Rule(step, *state);
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(room);
  const int64_t packs = parameters.size / V, threads = int64_t{gridDim.x} * kBlock;
  for (int64_t i = GlobalThread(); i < packs; i += threads) {
    ApplyAt<V>(rule, parameters, arrays, i * V);
  }
  for (int64_t i = packs * V + GlobalThread(); i < parameters.size; i += threads) {
    ApplyAt<1>(rule, parameters, arrays, i);
  }
}

template <typename Rule, int V, typename StepArgs, typename Arrays>
absl::Status QueueStep(const StepArgs& step, const ParameterRange& parameters, const Arrays& arrays,
                       const StepState* state, const ExecutionContext& context) {
  const int64_t most = int64_t{8} * AsCuda(context).num_multiprocessors();
  const int64_t blocks = std::min(most, CeilDiv(parameters.size, int64_t{V} * kBlock));
  VOXCONV_LAUNCH((ApplyRule<Rule, V, StepArgs, Arrays>), dim3(static_cast<unsigned>(blocks)),
                 kBlock, 0, context, step, parameters, arrays, state);
  return absl::OkStatus();
}

// `wide`: all arrays are aligned for packs.
template <typename Rule, typename StepArgs, typename Arrays>
absl::Status QueueStep(bool wide, const StepArgs& step, const ParameterRange& parameters,
                       const Arrays& arrays, const StepState* state,
                       const ExecutionContext& context) {
  return wide ? QueueStep<Rule, kWide>(step, parameters, arrays, state, context)
              : QueueStep<Rule, 1>(step, parameters, arrays, state, context);
}

}  // namespace

absl::Status CudaSquaredNorm(const float* values, int64_t size, double* norm,
                             const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckSquaredNorm(values, size, norm));
  constexpr int64_t kValuesPerThread = 16;
  const int64_t blocks = std::min(kMostSums, CeilDiv(size, kBlock * kValuesPerThread));
  const dim3 grid(static_cast<unsigned>(blocks));
  VOXCONV_ASSIGN_OR_RETURN(Array<double> partial, AllocateArray<double>(blocks, context));
  if (Aligned({values}, kWide * sizeof(float))) {
    VOXCONV_LAUNCH(SumSquares<kWide>, grid, kBlock, 0, context, values, size, partial.data());
  } else {
    VOXCONV_LAUNCH(SumSquares<1>, grid, kBlock, 0, context, values, size, partial.data());
  }
  VOXCONV_LAUNCH(AddPartialSums, dim3(1), kBlock, 0, context, partial.data(), blocks, norm);
  return absl::OkStatus();
}

absl::Status CudaPrepareStep(const StepRule& rule, const double* squared_norm, StepState* state,
                             const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckPrepareStep(rule, squared_norm, state));
  VOXCONV_LAUNCH(Prepare, dim3(1), dim3(1), 0, context, rule, squared_norm, state);
  return absl::OkStatus();
}

absl::Status CudaStep(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                      const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckStep(step, parameters, state));
  const bool wide = Aligned({parameters.values, parameters.gradients, step.velocity}, 16);
  return QueueStep<SgdRule>(wide, step, parameters, SgdArrays{step.velocity}, state, context);
}

absl::Status CudaStep(const AdamWStep& step, const ParameterRange& parameters,
                      const StepState* state, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckStep(step, parameters, state));
  const bool wide = Aligned({parameters.values, parameters.gradients, step.first, step.second}, 16);
  return QueueStep<AdamWRule>(wide, step, parameters, AdamWArrays{step.first, step.second}, state,
                              context);
}

}  // namespace voxconv
