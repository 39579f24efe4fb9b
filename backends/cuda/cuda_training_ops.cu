// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/column_sums.cuh"
#include "voxconv/backends/cuda/cuda_batch_norm.h"
#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_loss.h"
#include "voxconv/backends/cuda/cuda_lovasz.h"
#include "voxconv/backends/cuda/cuda_optimizer.h"
#include "voxconv/backends/cuda/cuda_pooling.h"
#include "voxconv/backends/cuda/cuda_training_ops.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/core/training_checks.h"
#include "voxconv/core/training_step.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

template <typename T, int V>
__global__ void ReluGradElements(const T* y, const T* dy, int64_t packs, T* dx) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i >= packs) return;
  const Pack<T, V> result = reinterpret_cast<const Pack<T, V>*>(y)[i];
  Pack<T, V> gradient = reinterpret_cast<const Pack<T, V>*>(dy)[i];
  for (int j = 0; j < V; ++j) {
    if (!(Widen(result.v[j]) > 0.0f)) gradient.v[j] = Narrow<T>(0.0f);
  }
  reinterpret_cast<Pack<T, V>*>(dx)[i] = gradient;
}

// Moves bits, whatever they mean. Sizes are in units.
template <typename Unit>
__global__ void SplitRows(const Unit* y, int64_t rows, Unit* a, int64_t a_units, Unit* b,
                          int64_t b_units) {
  OverlapLaunches();
  const int64_t units = a_units + b_units;
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < units; c += blockDim.x) {
      const Unit unit = y[row * units + c];
      if (c < a_units) {
        a[row * a_units + c] = unit;
      } else {
        b[row * b_units + c - a_units] = unit;
      }
    }
  }
}

template <typename T, int V>
struct ColumnSumTerm {
  static constexpr int kPack = V, kSums = 1, kRun = 8;
  using Row = Pack<T, V>;

  const T* x;

  class Columns {
   public:
    __device__ Columns(const ColumnSumTerm& term, int64_t)
        : x_(reinterpret_cast<const Row*>(term.x)) {}

    __device__ Row Load(int64_t at) const { return x_[at]; }

    __device__ void Add(const Row (&run)[kRun], int count, double (&sums)[kSums][V]) const {
      for (int i = 0; i < V; ++i) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          if (k < count) sum += Widen(run[k].v[i]);
        }
        sums[0][i] += sum;
      }
    }

   private:
    const Row* x_;
  };
};

struct WriteColumnSums {
  float* sums;

  __device__ void operator()(int64_t c, const double* values) const {
    sums[c] = static_cast<float>(values[0]);
  }
};

// V switches, of which four take one load.
template <int V>
__device__ void LoadSwitches(const int32_t* from, int32_t (&to)[V]) {
  constexpr int kLoad = V < 4 ? V : 4;
  for (int i = 0; i < V; i += kLoad) {
    const auto loaded = *reinterpret_cast<const Pack<int32_t, kLoad>*>(from + i);
    for (int j = 0; j < kLoad; ++j) to[i + j] = loaded.v[j];
  }
}

template <typename T, int V>
__global__ void SelectRows(const T* x, const int32_t* switches, int64_t rows, int64_t packs, T* y) {
  const int64_t channels = packs * V;
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      int32_t from[V];
      LoadSwitches(switches + (row * packs + c) * V, from);
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) {
        out.v[i] = from[i] < 0 ? Narrow<T>(0.0f) : x[from[i] * channels + c * V + i];
      }
      reinterpret_cast<Pack<T, V>*>(y)[row * packs + c] = out;
    }
  }
}

template <typename T, int V>
__global__ void DropElements(const T* x, float factor, DropoutKey key, uint64_t kept_below,
                             int64_t packs, T* y) {
  const int64_t i = GlobalThread();
  if (i >= packs) return;
  const uint64_t seed = key.shared_seed == nullptr ? key.seed : *key.shared_seed;
  Pack<T, V> values = reinterpret_cast<const Pack<T, V>*>(x)[i];
  for (int j = 0; j < V; ++j) {
    const bool keeps = DropoutKeeps(seed, static_cast<uint64_t>(i * V + j), kept_below);
    values.v[j] = Narrow<T>(keeps ? Widen(values.v[j]) * factor : 0.0f);
  }
  reinterpret_cast<Pack<T, V>*>(y)[i] = values;
}

template <typename Unit>
absl::Status SplitUnits(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                        const ExecutionContext& context) {
  const int64_t elements = static_cast<int64_t>(sizeof(Unit)) / SizeOf(y.dtype);
  const RowLaunch launch(y.rows, y.channels / elements, context);
  VOXCONV_LAUNCH_EARLY(SplitRows<Unit>, launch.grid, launch.block, 0, context,
                       static_cast<const Unit*>(y.data), y.rows, static_cast<Unit*>(a.data),
                       a.channels / elements, static_cast<Unit*>(b.data), b.channels / elements);
  return absl::OkStatus();
}

class CudaTrainingOps final : public TrainingOps {
 public:
  absl::Status ChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                              const ExecutionContext& context) override {
    return CudaChannelMoments(x, mean, deviation, context);
  }
  absl::Status SumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                             int64_t channels, double* sums,
                             const ExecutionContext& context) override {
    return CudaSumsOfMoments(mean, deviation, rows, channels, sums, context);
  }
  absl::Status MomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation,
                             const ExecutionContext& context) override {
    return CudaMomentsOfSums(sums, channels, mean, deviation, context);
  }
  absl::Status BatchNormScale(const BatchNormBatch& batch,
                              const ExecutionContext& context) override {
    return CudaBatchNormScale(batch, context);
  }
  absl::Status BatchNormGradSums(const BatchNormGradArgs& args,
                                 const ExecutionContext& context) override {
    return CudaBatchNormGradSums(args, context);
  }
  absl::Status BatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                  const ExecutionContext& context) override {
    return CudaBatchNormInputGrad(args, dx, context);
  }

  absl::Status ReluGrad(const ConstTensorView& y, const ConstTensorView& dy, const TensorView& dx,
                        const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckReluGrad(y, dy, dx, *context.backend));
    const int64_t size = y.rows * y.channels;
    return WithPack(y.dtype, size, {y.data, dy.data, dx.data}, [&]<typename T, int V>() {
      VOXCONV_LAUNCH_EARLY((ReluGradElements<T, V>), GridFor(size / V, kBlock), kBlock, 0, context,
                           static_cast<const T*>(y.data), static_cast<const T*>(dy.data), size / V,
                           static_cast<T*>(dx.data));
      return absl::OkStatus();
    });
  }

  absl::Status Split(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                     const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckSplit(y, a, b, *context.backend));
    const auto row_bytes = [](const TensorView& part) {
      return static_cast<uint64_t>(part.channels * SizeOf(part.dtype));
    };
    const int bytes = VectorBytes(
        16, {AddressOf(y.data), AddressOf(a.data), AddressOf(b.data), row_bytes(a), row_bytes(b)});
    return ForVectorBytes(bytes, [&](auto vector) {
      return SplitUnits<RawVector<decltype(vector)::value>>(y, a, b, context);
    });
  }

  absl::Status ColumnSums(const ConstTensorView& x, float* sums,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckColumnSums(x, sums, *context.backend));
    return WithPack(x.dtype, x.channels, {x.data}, [&]<typename T, int V>() {
      return SumColumns(ColumnSumTerm<T, V>{static_cast<const T*>(x.data)}, WriteColumnSums{sums},
                        x.rows, x.channels, context);
    });
  }

  absl::Status LinearWeightGradient(const ConstTensorView& x, const ConstTensorView& dy,
                                    Precision precision, const TensorView& gradient,
                                    const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(
        CheckLinearWeightGradient(x, dy, precision, gradient, *context.backend));
    const GemmArgs args{.m = x.channels,
                        .n = dy.channels,
                        .k = x.rows,
                        .a = x.data,
                        .b = dy.data,
                        .c = gradient.data,
                        .transpose_a = true,
                        .precision = precision,
                        .c_dtype = gradient.dtype};
    return AsCuda(context).gemm().Run(args, context);
  }

  absl::Status Select(const ConstTensorView& x, const int32_t* switches, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckSelect(x, switches, y, *context.backend));
    return WithPack(x.dtype, y.channels, {y.data, switches}, [&]<typename T, int V>() {
      const RowLaunch launch(y.rows, y.channels / V, context);
      VOXCONV_LAUNCH((SelectRows<T, V>), launch.grid, launch.block, 0, context,
                     static_cast<const T*>(x.data), switches, y.rows, y.channels / V,
                     static_cast<T*>(y.data));
      return absl::OkStatus();
    });
  }

  absl::Status GlobalPoolGrad(const Array<Coordinate>& rows, PoolMode mode,
                              const ConstTensorView& x, const ConstTensorView& y,
                              const ConstTensorView& dy, const TensorView& dx,
                              const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckGlobalPoolGrad(rows.size(), mode, x, y, dy, dx, *context.backend));
    return CudaGlobalPoolGrad(rows, mode, x, y, dy, dx, context);
  }

  absl::Status Dropout(const ConstTensorView& x, double rate, const DropoutKey& key,
                       const TensorView& y, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDropout(x, rate, y, *context.backend));
    const int64_t size = x.rows * x.channels;
    const auto factor = static_cast<float>(1.0 / (1.0 - rate));
    return WithPack(x.dtype, size, {x.data, y.data}, [&]<typename T, int V>() {
      VOXCONV_LAUNCH((DropElements<T, V>), GridFor(size / V, kBlock), kBlock, 0, context,
                     static_cast<const T*>(x.data), factor, key, DropoutKeptBelow(rate), size / V,
                     static_cast<T*>(y.data));
      return absl::OkStatus();
    });
  }

  absl::Status CrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                            LossResult* result, const ExecutionContext& context) override {
    return CudaCrossEntropy(args, gradient, result, context);
  }
  absl::Status LovaszSoftmax(const LovaszArgs& args, const TensorView& gradient, LossResult* result,
                             const ExecutionContext& context) override {
    return CudaLovaszSoftmax(args, gradient, result, context);
  }

  absl::Status SquaredNorm(const float* values, int64_t size, double* norm,
                           const ExecutionContext& context) override {
    return CudaSquaredNorm(values, size, norm, context);
  }
  absl::Status PrepareStep(const StepRule& rule, const double* squared_norm, StepState* state,
                           const ExecutionContext& context) override {
    return CudaPrepareStep(rule, squared_norm, state, context);
  }
  absl::Status Step(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                    const ExecutionContext& context) override {
    return CudaStep(step, parameters, state, context);
  }
  absl::Status Step(const AdamWStep& step, const ParameterRange& parameters, const StepState* state,
                    const ExecutionContext& context) override {
    return CudaStep(step, parameters, state, context);
  }

  absl::StatusOr<Buffer> HostMemory(int64_t bytes, const ExecutionContext& context) override {
    return AsCuda(context).HostBuffer(bytes);
  }
};

}  // namespace

std::unique_ptr<TrainingOps> MakeCudaTrainingOps() { return std::make_unique<CudaTrainingOps>(); }

}  // namespace voxconv
