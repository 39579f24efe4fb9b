// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_tensor_ops.h"

#include <algorithm>

#include "voxconv/backends/cpu/cpu_pooling.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/backends/cpu/weight_gradient.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

// Rows a matmul task computes, as in Sgemm.
constexpr int64_t kMatmulRowsPerTask = 1024;

// y[i] = f(x[i], channel) over all rows, in parallel.
template <typename F>
void ForEachElement(const ConstTensorView& x, const TensorView& y, const ExecutionContext& context,
                    const F& f) {
  const int64_t channels = x.channels;
  ParallelRanges(context, x.rows, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = x.f32() + row * channels;
      float* to = y.f32() + row * channels;
      for (int64_t c = 0; c < channels; ++c) to[c] = f(from[c], c);
    }
  });
}

// Calls `run` with the activation as a type of its own, so that no inner loop branches on it. Not
// std::max: a NaN stays one.
template <typename Run>
void WithActivation(bool relu, const Run& run) {
  if (relu) {
    run([](float v) { return v < 0.0f ? 0.0f : v; });
  } else {
    run([](float v) { return v; });
  }
}

class CpuTensorOps final : public TensorOps {
 public:
  absl::Status ScaleShift(const ConstTensorView& x, const float* scale, const float* shift,
                          bool relu, const TensorView& y,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckScaleShift(x, y, *context.backend));
    WithActivation(relu, [&](const auto& activate) {
      if (scale != nullptr && shift != nullptr) {
        ForEachElement(x, y, context,
                       [&](float v, int64_t c) { return activate(v * scale[c] + shift[c]); });
      } else if (scale != nullptr) {
        ForEachElement(x, y, context, [&](float v, int64_t c) { return activate(v * scale[c]); });
      } else if (shift != nullptr) {
        ForEachElement(x, y, context, [&](float v, int64_t c) { return activate(v + shift[c]); });
      } else {
        ForEachElement(x, y, context, [&](float v, int64_t) { return activate(v); });
      }
    });
    return absl::OkStatus();
  }

  absl::Status Convert(const ConstTensorView& x, const TensorView& y,
                       const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckConvert(x, y, *context.backend));
    ForEachElement(x, y, context, [](float v, int64_t) { return v; });
    return absl::OkStatus();
  }

  absl::Status Add(const ConstTensorView& a, const ConstTensorView& b, bool relu,
                   const TensorView& y, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckAdd(a, b, y, *context.backend));
    WithActivation(relu, [&](const auto& activate) {
      const float *from_a = a.f32(), *from_b = b.f32();
      float* to = y.f32();
      const int64_t size = a.rows * a.channels;
      ParallelRanges(context, size, RowsPerTask(1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = activate(from_a[i] + from_b[i]);
      });
    });
    return absl::OkStatus();
  }

  absl::Status Concat(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckConcat(a, b, y, *context.backend));
    ParallelRanges(context, y.rows, RowsPerTask(y.channels), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* to = y.f32() + row * y.channels;
        std::copy_n(a.f32() + row * a.channels, a.channels, to);
        std::copy_n(b.f32() + row * b.channels, b.channels, to + a.channels);
      }
    });
    return absl::OkStatus();
  }

  absl::Status Linear(const ConstTensorView& x, const ConstTensorView& weights, const float* bias,
                      Precision precision, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckLinear(x, weights, precision, y, *context.backend));
    if (bias == nullptr) {
      Sgemm(context, x.rows, y.channels, x.channels, x.f32(), weights.f32(),
            ProductMode::kOverwrite, y.f32());
      return absl::OkStatus();
    }
    // The bias goes in first, task by task, so that y is touched while it is in the cache.
    ParallelRanges(context, x.rows, kMatmulRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::copy_n(bias, y.channels, y.f32() + row * y.channels);
      }
      SgemmSerial(end - begin, y.channels, x.channels, x.f32() + begin * x.channels, weights.f32(),
                  ProductMode::kAccumulate, y.f32() + begin * y.channels);
    });
    return absl::OkStatus();
  }

  absl::Status TransposeWeights(const ConstTensorView& weights, int num_offsets, bool reversed,
                                const TensorView& transposed,
                                const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(
        CheckTransposeWeights(weights, num_offsets, transposed, *context.backend));
    const int64_t c_in = transposed.channels, c_out = weights.channels;
    ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
      const float* from = weights.f32() + k * c_in * c_out;
      float* to = transposed.f32() + (reversed ? num_offsets - 1 - k : k) * c_in * c_out;
      for (int64_t ci = 0; ci < c_in; ++ci) {
        for (int64_t co = 0; co < c_out; ++co) to[co * c_in + ci] = from[ci * c_out + co];
      }
    });
    return absl::OkStatus();
  }
  absl::Status WeightGradient(const KernelMap& map, const ConstTensorView& x,
                              const ConstTensorView& dy, Precision precision,
                              const TensorView& gradient,
                              const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckWeightGradient(map, x, dy, precision, gradient, *context.backend));
    return CpuWeightGradient(map, x, dy, gradient, context);
  }

  absl::Status Pool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                    const TensorView& y, int32_t* switches,
                    const ExecutionContext& context) override {
    return CpuPool(map, mode, x, y, switches, context);
  }
  absl::Status Unpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                      const int32_t* switches, const TensorView& y,
                      const ExecutionContext& context) override {
    return CpuUnpool(map, mode, x, switches, y, context);
  }
  absl::Status GlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                          const TensorView& y, const ExecutionContext& context) override {
    return CpuGlobalPool(voxels, mode, x, y, context);
  }
};

}  // namespace

std::unique_ptr<TensorOps> MakeCpuTensorOps() { return std::make_unique<CpuTensorOps>(); }

}  // namespace voxconv
