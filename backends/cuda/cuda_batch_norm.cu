// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "voxconv/backends/cuda/column_sums.cuh"
#include "voxconv/backends/cuda/cuda_batch_norm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

constexpr int kChannelBlock = 128;  // of kernels with a thread for each channel

// The sums of x - p and of (x - p)^2, where p is the column's first value. Values that lie close
// together far from 0 then lose nothing when they are subtracted from each other in f32.
template <typename T, int V>
struct MomentTerm {
  static constexpr int kPack = V, kSums = 2;
  static constexpr int kRun = V > 4 ? 4 : 8;  // so that registers suffice
  using Row = Pack<T, V>;

  const T* x;

  class Columns {
   public:
    __device__ Columns(const MomentTerm& term, int64_t pack)
        : x_(reinterpret_cast<const Row*>(term.x)) {
      const Row first = x_[pack];
      for (int i = 0; i < V; ++i) origin_[i] = Widen(first.v[i]);
    }

    __device__ Row Load(int64_t at) const { return x_[at]; }

    // The squares of a run are summed about the run's own mean, and then moved to the origin.
    __device__ void Add(const Row (&run)[kRun], int count, double (&sums)[kSums][V]) const {
      const float part = 1.0f / static_cast<float>(count);
      for (int i = 0; i < V; ++i) {
        float sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          if (k < count) sum += Widen(run[k].v[i]) - origin_[i];
        }
        const float mean = sum * part;
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          const float difference = Widen(run[k].v[i]) - origin_[i] - mean;
          if (k < count) squares = fmaf(difference, difference, squares);
        }
        const double m = mean, s = sum;
        sums[0][i] += s;
        sums[1][i] += squares + m * (2.0 * s - count * m);
      }
    }

   private:
    const Row* x_;
    float origin_[V];
  };
};

template <typename T>
struct WriteMoments {
  const T* x;
  int64_t rows;
  float *mean, *deviation;

  __device__ void operator()(int64_t c, const double* sums) const {
    if (rows == 0) {
      mean[c] = deviation[c] = 0.0f;
      return;
    }
    const double from_origin = sums[0] / static_cast<double>(rows);
    const double squares = sums[1] - sums[0] * from_origin;
    mean[c] = static_cast<float>(Widen(x[c]) + from_origin);
    deviation[c] = squares < 0 ? 0.0f : static_cast<float>(squares);  // a NaN stays a NaN
  }
};

__device__ void UpdateRunning(float& running, double momentum, double value) {
  running = static_cast<float>((1.0 - momentum) * running + momentum * value);
}

// By channel. The first also counts the rows.
__global__ void SumsFromMoments(const float* mean, const float* deviation, double rows,
                                int64_t channels, double* sums) {
  const int64_t c = GlobalThread();
  if (c == 0) sums[0] = rows;
  if (c >= channels) return;
  const double m = mean[c];
  sums[1 + c] = rows * m;
  sums[1 + channels + c] = deviation[c] + rows * m * m;
}

__global__ void MomentsFromSums(const double* sums, int64_t channels, float* mean,
                                float* deviation) {
  const int64_t c = GlobalThread();
  if (c >= channels) return;
  const double m = sums[1 + c] / (sums[0] > 1 ? sums[0] : 1.0);
  const double squares = sums[1 + channels + c] - m * sums[1 + c];
  mean[c] = static_cast<float>(m);
  deviation[c] = squares < 0 ? 0.0f : static_cast<float>(squares);  // a NaN stays a NaN
}

// The rows that statistics are of.
__device__ double RowsOf(int64_t rows, const double* shared_rows) {
  return shared_rows == nullptr ? static_cast<double>(rows) : *shared_rows;
}

__global__ void ScaleFromMoments(BatchNormBatch batch) {
  OverlapLaunches();
  const int64_t c = GlobalThread();
  if (c >= batch.channels) return;
  const double given = RowsOf(batch.rows, batch.shared_rows);
  const double rows = given > 1 ? given : 1.0;
  const double mean = batch.mean[c], deviation = batch.deviation[c];
  const double inverse_std = 1.0 / sqrt(deviation / rows + batch.epsilon);
  const double scale = batch.gamma[c] * inverse_std;
  batch.inverse_std[c] = static_cast<float>(inverse_std);
  batch.scale[c] = static_cast<float>(scale);
  batch.shift[c] = static_cast<float>(batch.beta[c] - mean * scale);
  if (given == 0) return;
  if (batch.running_mean != nullptr) UpdateRunning(batch.running_mean[c], batch.momentum, mean);
  if (batch.running_variance != nullptr) {
    const double unbiased = rows > 1 ? rows - 1 : rows;
    UpdateRunning(batch.running_variance[c], batch.momentum, deviation / unbiased);
  }
}

// What the gradient of one row needs.
template <typename T, int V>
struct GradRow {
  Pack<T, V> x, dy, y;
};

// The operands of a gradient, in packs.
template <typename T, int V>
class GradRows {
 public:
  // `y` may be null.
  __host__ __device__ GradRows(const void* x, const void* dy, const void* y)
      : x_(static_cast<const Pack<T, V>*>(x)),
        dy_(static_cast<const Pack<T, V>*>(dy)),
        y_(static_cast<const Pack<T, V>*>(y)) {}

  __device__ GradRow<T, V> Load(int64_t at) const {
    GradRow<T, V> row;
    row.x = x_[at];
    row.dy = dy_[at];
    if (y_ != nullptr) row.y = y_[at];
    return row;
  }
  // Element i of dy as it reaches the batch norm: 0 where the ReLU behind it gave 0.
  __device__ float Masked(const GradRow<T, V>& row, int i) const {
    return y_ == nullptr || Widen(row.y.v[i]) > 0.0f ? Widen(row.dy.v[i]) : 0.0f;
  }

 private:
  const Pack<T, V>* x_;
  const Pack<T, V>* dy_;
  const Pack<T, V>* y_;
};

// The sums of dy and of dy * (x - mean).
template <typename T, int V>
struct GradTerm {
  static constexpr int kPack = V, kSums = 2;
  static constexpr int kRun = V > 4 ? 3 : 4;  // so that registers suffice
  using Row = GradRow<T, V>;

  GradRows<T, V> rows;
  const float* mean;

  class Columns {
   public:
    __device__ Columns(const GradTerm& term, int64_t pack) : rows_(term.rows) {
      for (int i = 0; i < V; ++i) mean_[i] = term.mean[pack * V + i];
    }

    __device__ Row Load(int64_t at) const { return rows_.Load(at); }

    __device__ void Add(const Row (&run)[kRun], int count, double (&sums)[kSums][V]) const {
      for (int i = 0; i < V; ++i) {
        float sum = 0, product = 0;
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          if (k >= count) continue;
          const float dy = rows_.Masked(run[k], i);
          sum += dy;
          product = fmaf(dy, Widen(run[k].x.v[i]) - mean_[i], product);
        }
        sums[0][i] += sum;
        sums[1][i] += product;
      }
    }

   private:
    GradRows<T, V> rows_;
    float mean_[V];
  };
};

struct WriteGradSums {
  const float* inverse_std;
  float *sum_dy, *sum_dy_x;

  __device__ void operator()(int64_t c, const double* sums) const {
    sum_dy[c] = static_cast<float>(sums[0]);
    sum_dy_x[c] = static_cast<float>(sums[1] * inverse_std[c]);
  }
};

// The arrays [C] of BatchNormGradArgs.
struct GradColumns {
  const float *mean, *inverse_std, *gamma, *sum_dy, *sum_dy_x;
  int64_t rows;
  const double* shared_rows;  // may be null
};

// dx = factor * (dy - offset - (x - mean) * slope). A thread keeps these of its channels while it
// goes down the rows.
template <typename T, int V>
__global__ void __launch_bounds__(256) InputGradRows(GradRows<T, V> operands, GradColumns columns,
                                                     int64_t rows, int64_t packs, Pack<T, V>* dx) {
  OverlapLaunches();
  const auto all_rows = static_cast<float>(RowsOf(columns.rows, columns.shared_rows));
  for (int64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
    float mean[V], factor[V], offset[V], slope[V];
    for (int i = 0; i < V; ++i) {
      const int64_t c = pack * V + i;
      const float inverse_std = columns.inverse_std[c];
      mean[i] = columns.mean[c];
      factor[i] = columns.gamma[c] * inverse_std;
      offset[i] = columns.sum_dy[c] / all_rows;
      slope[i] = columns.sum_dy_x[c] / all_rows * inverse_std;
    }
    for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
      const GradRow<T, V> in = operands.Load(row * packs + pack);
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) {
        const float centred = Widen(in.x.v[i]) - mean[i];
        out.v[i] = Narrow<T>(factor[i] * (operands.Masked(in, i) - offset[i] - centred * slope[i]));
      }
      dx[row * packs + pack] = out;
    }
  }
}

}  // namespace

absl::Status CudaChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                                const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckChannelMoments(x, mean, deviation, *context.backend));
  return WithPack(x.dtype, x.channels, {x.data}, [&]<typename T, int V>() {
    const T* data = static_cast<const T*>(x.data);
    return SumColumns(MomentTerm<T, V>{data}, WriteMoments<T>{data, x.rows, mean, deviation},
                      x.rows, x.channels, context);
  });
}

absl::Status CudaSumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                               int64_t channels, double* sums, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckMomentSums(mean, deviation, channels, sums));
  const dim3 grid = GridFor(std::max<int64_t>(channels, 1), kChannelBlock);
  VOXCONV_LAUNCH(SumsFromMoments, grid, kChannelBlock, 0, context, mean, deviation,
                 static_cast<double>(rows), channels, sums);
  return absl::OkStatus();
}

absl::Status CudaMomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation,
                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckMomentSums(mean, deviation, channels, sums));
  VOXCONV_LAUNCH(MomentsFromSums, GridFor(channels, kChannelBlock), kChannelBlock, 0, context, sums,
                 channels, mean, deviation);
  return absl::OkStatus();
}

absl::Status CudaBatchNormScale(const BatchNormBatch& batch, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormScale(batch));
  VOXCONV_LAUNCH_EARLY(ScaleFromMoments, GridFor(batch.channels, kChannelBlock), kChannelBlock, 0,
                       context, batch);
  return absl::OkStatus();
}

absl::Status CudaBatchNormGradSums(const BatchNormGradArgs& args, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormGradSums(args, *context.backend));
  const ConstTensorView& x = args.x;
  return WithPack(x.dtype, x.channels, {x.data, args.dy.data, args.y.data},
                  [&]<typename T, int V>() {
                    const GradRows<T, V> rows(x.data, args.dy.data, args.y.data);
                    return SumColumns(GradTerm<T, V>{rows, args.mean},
                                      WriteGradSums{args.inverse_std, args.sum_dy, args.sum_dy_x},
                                      x.rows, x.channels, context);
                  });
}

absl::Status CudaBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                    const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormInputGrad(args, dx, *context.backend));
  const ConstTensorView& x = args.x;
  const GradColumns columns{args.mean,     args.inverse_std, args.gamma,      args.sum_dy,
                            args.sum_dy_x, args.rows,        args.shared_rows};
  return WithPack(
      x.dtype, x.channels, {x.data, args.dy.data, args.y.data, dx.data}, [&]<typename T, int V>() {
        RowLaunch launch(x.rows, x.channels / V, context);
        // Few blocks, because each thread loads five arrays before its first row.
        launch.grid.x =
            std::min<unsigned>(launch.grid.x, 6 * AsCuda(context).num_multiprocessors());
        const GradRows<T, V> rows(x.data, args.dy.data, args.y.data);
        VOXCONV_LAUNCH_EARLY((InputGradRows<T, V>), launch.grid, launch.block, 0, context, rows,
                             columns, x.rows, x.channels / V, static_cast<Pack<T, V>*>(dx.data));
        return absl::OkStatus();
      });
}

}  // namespace voxconv
