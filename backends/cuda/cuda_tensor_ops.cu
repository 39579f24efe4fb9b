// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_pooling.h"
#include "voxconv/backends/cuda/cuda_tensor_ops.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/narrow_linear.h"
#include "voxconv/backends/cuda/transpose_weights.h"
#include "voxconv/backends/cuda/weight_gradient.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

__device__ float Activate(float v, bool relu) { return relu ? Relu(v) : v; }

// A thread keeps the scales and shifts of its channels while it goes down the rows.
template <typename From, typename To, int V>
__global__ void ScaleShiftRows(const From* x, const float* scale, const float* shift, bool relu,
                               int64_t rows, int64_t packs, To* y) {
  OverlapLaunches();
  const auto* from = reinterpret_cast<const Pack<From, V>*>(x);
  auto* to = reinterpret_cast<Pack<To, V>*>(y);
  for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
    float a[V], b[V];
    for (int i = 0; i < V; ++i) {
      a[i] = scale == nullptr ? 1.0f : scale[c * V + i];
      b[i] = shift == nullptr ? 0.0f : shift[c * V + i];
    }
    for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
      const Pack<From, V> in = from[row * packs + c];
      Pack<To, V> out;
      for (int i = 0; i < V; ++i) {
        out.v[i] = Narrow<To>(Activate(Widen(in.v[i]) * a[i] + b[i], relu));
      }
      to[row * packs + c] = out;
    }
  }
}

template <typename T, int V>
__global__ void AddElements(const T* a, const T* b, bool relu, int64_t packs, T* y) {
  OverlapLaunches();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  const Pack<T, V> left = reinterpret_cast<const Pack<T, V>*>(a)[i];
  const Pack<T, V> right = reinterpret_cast<const Pack<T, V>*>(b)[i];
  Pack<T, V> sum;
  for (int j = 0; j < V; ++j) {
    sum.v[j] = Narrow<T>(Activate(Widen(left.v[j]) + Widen(right.v[j]), relu));
  }
  reinterpret_cast<Pack<T, V>*>(y)[i] = sum;
}

template <typename From, typename To>
__global__ void ConvertElements(const From* x, int64_t size, To* y) {
  OverlapLaunches();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) y[i] = Narrow<To>(Widen(x[i]));
}

// Moves bits, whatever they mean. Sizes are in units.
template <typename Unit>
__global__ void ConcatRows(const Unit* a, int64_t a_units, const Unit* b, int64_t b_units,
                           int64_t rows, Unit* y) {
  const int64_t units = a_units + b_units;
  OverlapLaunches();
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < units; c += blockDim.x) {
      y[row * units + c] = c < a_units ? a[row * a_units + c] : b[row * b_units + c - a_units];
    }
  }
}

template <typename Unit>
absl::Status ConcatUnits(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                         const ExecutionContext& context) {
  const int64_t elements = static_cast<int64_t>(sizeof(Unit)) / SizeOf(a.dtype);
  const RowLaunch launch(y.rows, y.channels / elements, context);
  VOXCONV_LAUNCH_EARLY(ConcatRows<Unit>, launch.grid, launch.block, 0, context,
                       static_cast<const Unit*>(a.data), a.channels / elements,
                       static_cast<const Unit*>(b.data), b.channels / elements, y.rows,
                       static_cast<Unit*>(y.data));
  return absl::OkStatus();
}

// y = x + bias, from sums in f32, so that the result is rounded once.
template <typename T>
absl::Status AddBias(const Array<float>& sums, const float* bias, const TensorView& y,
                     const ExecutionContext& context) {
  constexpr int kPack = 4;
  T* to = static_cast<T*>(y.data);
  const bool wide = y.channels % kPack == 0 && Aligned({y.data}, kPack * sizeof(T));
  const RowLaunch launch(y.rows, wide ? y.channels / kPack : y.channels, context);
  if (wide) {
    VOXCONV_LAUNCH_EARLY((ScaleShiftRows<float, T, kPack>), launch.grid, launch.block, 0, context,
                         sums.data(), nullptr, bias, false, y.rows, y.channels / kPack, to);
  } else {
    VOXCONV_LAUNCH_EARLY((ScaleShiftRows<float, T, 1>), launch.grid, launch.block, 0, context,
                         sums.data(), nullptr, bias, false, y.rows, y.channels, to);
  }
  return absl::OkStatus();
}

class CudaTensorOps final : public TensorOps {
 public:
  absl::Status ScaleShift(const ConstTensorView& x, const float* scale, const float* shift,
                          bool relu, const TensorView& y,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckScaleShift(x, y, *context.backend));
    return WithPack(x.dtype, x.channels, {x.data, y.data}, [&]<typename T, int V>() {
      const RowLaunch launch(x.rows, x.channels / V, context);
      VOXCONV_LAUNCH_EARLY((ScaleShiftRows<T, T, V>), launch.grid, launch.block, 0, context,
                           static_cast<const T*>(x.data), scale, shift, relu, x.rows,
                           x.channels / V, static_cast<T*>(y.data));
      return absl::OkStatus();
    });
  }

  absl::Status Convert(const ConstTensorView& x, const TensorView& y,
                       const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckConvert(x, y, *context.backend));
    const int64_t size = x.rows * x.channels;
    return WithStoredType(x.dtype, [&]<typename From>() {
      return WithStoredType(y.dtype, [&]<typename To>() {
        constexpr int kBlock = 256;
        VOXCONV_LAUNCH_EARLY((ConvertElements<From, To>), GridFor(size, kBlock), kBlock, 0, context,
                             static_cast<const From*>(x.data), size, static_cast<To*>(y.data));
        return absl::OkStatus();
      });
    });
  }

  absl::Status Add(const ConstTensorView& a, const ConstTensorView& b, bool relu,
                   const TensorView& y, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckAdd(a, b, y, *context.backend));
    const int64_t size = a.rows * a.channels;
    return WithPack(a.dtype, size, {a.data, b.data, y.data}, [&]<typename T, int V>() {
      constexpr int kBlock = 256;
      VOXCONV_LAUNCH_EARLY((AddElements<T, V>), GridFor(size / V, kBlock), kBlock, 0, context,
                           static_cast<const T*>(a.data), static_cast<const T*>(b.data), relu,
                           size / V, static_cast<T*>(y.data));
      return absl::OkStatus();
    });
  }

  absl::Status Concat(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckConcat(a, b, y, *context.backend));
    const int64_t element = SizeOf(a.dtype);
    const auto fits = [&](int64_t bytes) {
      return a.channels * element % bytes == 0 && b.channels * element % bytes == 0 &&
             Aligned({a.data, b.data, y.data}, bytes);
    };
    if (fits(16)) return ConcatUnits<uint4>(a, b, y, context);
    if (fits(4)) return ConcatUnits<uint32_t>(a, b, y, context);
    return ConcatUnits<uint16_t>(a, b, y, context);
  }

  absl::Status Linear(const ConstTensorView& x, const ConstTensorView& weights, const float* bias,
                      Precision precision, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckLinear(x, weights, precision, y, *context.backend));
    if ((bias != nullptr || y.channels % 8 != 0) && TakesNarrowLinear(x, weights, y, context)) {
      return NarrowLinear(x, weights, bias, y, context);
    }
    GemmArgs args{.m = x.rows,
                  .n = weights.channels,
                  .k = x.channels,
                  .a = x.data,
                  .b = weights.data,
                  .c = y.data,
                  .precision = precision,
                  .c_dtype = x.dtype};
    CudaGemm& gemm = AsCuda(context).gemm();
    if (bias == nullptr) return gemm.Run(args, context);
    if (x.dtype == DType::kF32) {
      VOXCONV_RETURN_IF_ERROR(gemm.Run(args, context));
      return ScaleShift(y, nullptr, bias, false, y, context);
    }
    VOXCONV_ASSIGN_OR_RETURN(Array<float> sums, AllocateArray<float>(y.rows * y.channels, context));
    args.c = sums.data();
    args.c_dtype = DType::kF32;
    VOXCONV_RETURN_IF_ERROR(gemm.Run(args, context));
    return x.dtype == DType::kF16 ? AddBias<__half>(sums, bias, y, context)
                                  : AddBias<__nv_bfloat16>(sums, bias, y, context);
  }

  absl::Status TransposeWeights(const ConstTensorView& weights, int num_offsets, bool reversed,
                                const TensorView& transposed,
                                const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(
        CheckTransposeWeights(weights, num_offsets, transposed, *context.backend));
    return CudaTransposeWeights(weights, num_offsets, reversed, transposed, context);
  }

  absl::Status WeightGradient(const KernelMap& map, const ConstTensorView& x,
                              const ConstTensorView& dy, Precision precision,
                              const TensorView& gradient,
                              const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckWeightGradient(map, x, dy, precision, gradient, *context.backend));
    return CudaWeightGradient(map, x, dy, precision, gradient, context);
  }

  MapForm PoolForm() const override { return MapForm::kNeighbourTable; }
  absl::Status Pool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                    const TensorView& y, int32_t* switches,
                    const ExecutionContext& context) override {
    const Backend& backend = *context.backend;
    VOXCONV_RETURN_IF_ERROR(map.form() == PoolForm()
                                ? CheckPoolTensors(map, mode, x, y, switches, backend)
                                : CheckPool(map, mode, x, y, switches, backend));
    return CudaPool(map, mode, x, y, switches, context);
  }
  absl::Status Unpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                      const int32_t* switches, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckUnpool(map, mode, x, switches, y, *context.backend));
    return CudaUnpool(map, mode, x, switches, y, context);
  }
  absl::Status GlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                          const TensorView& y, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckGlobalPool(voxels, mode, x, y, *context.backend));
    return CudaGlobalPool(voxels.rows(), mode, x, y, context);
  }
};

}  // namespace

std::unique_ptr<TensorOps> MakeCudaTensorOps() { return std::make_unique<CudaTensorOps>(); }

}  // namespace voxconv
