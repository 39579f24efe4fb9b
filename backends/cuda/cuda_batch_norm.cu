// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
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

struct Moments {
  float mean = 0, deviation = 0;
};

// What a MomentTerm's sums of column c say.
template <typename T>
__device__ Moments MomentsFromTerm(const T* x, int64_t rows, int64_t c, const double* sums) {
  if (rows == 0) return {};
  const double from_origin = sums[0] / static_cast<double>(rows);
  const double squares = sums[1] - sums[0] * from_origin;
  return {.mean = static_cast<float>(Widen(x[c]) + from_origin),
          .deviation = squares < 0 ? 0.0f : static_cast<float>(squares)};  // a NaN stays a NaN
}

template <typename T>
struct WriteMoments {
  const T* x;
  int64_t rows;
  float *mean, *deviation;

  __device__ void operator()(int64_t c, const double* sums) const {
    const Moments moments = MomentsFromTerm(x, rows, c, sums);
    mean[c] = moments.mean;
    deviation[c] = moments.deviation;
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

// Writes the results of channel c. `given`: the rows that the moments are of.
__device__ void ScaleChannel(const BatchNormBatch& batch, int64_t c, double given, double mean,
                             double deviation) {
  const double rows = given > 1 ? given : 1.0;
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

__global__ void ScaleFromMoments(BatchNormBatch batch) {
  OverlapLaunches();
  const int64_t c = GlobalThread();
  if (c >= batch.channels) return;
  ScaleChannel(batch, c, RowsOf(batch.rows, batch.shared_rows), batch.mean[c], batch.deviation[c]);
}

// A column of any dtype.
struct AnyColumn {
  const void* data;
  DType dtype;

  __device__ double operator[](int64_t c) const {
    switch (dtype) {
      case DType::kF32:
        return static_cast<const float*>(data)[c];
      case DType::kF16:
        return Widen(static_cast<const __half*>(data)[c]);
      case DType::kBF16:
        return Widen(static_cast<const __nv_bfloat16*>(data)[c]);
    }
    return 0;
  }
};

struct AnyNorm {
  AnyColumn mean, variance, gamma, beta;
  double epsilon;
  int64_t channels;
  float *scale, *shift;
};

constexpr int kMostNorms = 4;
struct AnyNorms {
  AnyNorm at[kMostNorms];
};

// Row y of the grid has norm y.
__global__ void ScaleFromRunning(AnyNorms norms) {
  OverlapLaunches();
  const AnyNorm& norm = norms.at[blockIdx.y];
  const int64_t c = GlobalThread();
  if (c >= norm.channels) return;
  const double factor = norm.gamma[c] / sqrt(norm.variance[c] + norm.epsilon);
  norm.scale[c] = static_cast<float>(factor);
  norm.shift[c] = static_cast<float>(norm.beta[c] - norm.mean[c] * factor);
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

// Two numbers that a process leaves for another one. Each has the turn beside it, in the 8 bytes
// that a GPU always writes and reads at once. So who sees the turn sees the number, without a
// fence.
struct alignas(16) Letter {
  uint32_t first, first_turn, second, second_turn;
};

__device__ void Send(Letter* to, uint32_t first, uint32_t second, uint32_t turn) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};"
               :
               : "l"(to), "r"(first), "r"(turn), "r"(second)
               : "memory");
}

__device__ Letter Await(const Letter* from, uint32_t turn) {
  Letter letter;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(letter.first), "=r"(letter.first_turn), "=r"(letter.second),
                   "=r"(letter.second_turn)
                 : "l"(from)
                 : "memory");
  } while (letter.first_turn != turn || letter.second_turn != turn);
  return letter;
}

// The letters of a column. Each process has two sets of them in turns: a process that writes into a
// set has had the others' letters of the turn before, which they sent when they had read this set.
class Letters {
 public:
  explicit Letters(const BatchPeers& peers) : peers_(peers) {}

  __device__ int rank() const { return peers_.rank; }
  __device__ int count() const { return peers_.count; }
  // Letter `number`, 0 or 1, of this process about column c, to all others.
  __device__ void SendToAll(int64_t c, int number, uint32_t first, uint32_t second) const {
    for (int to = 0; to < peers_.count; ++to) {
      if (to == peers_.rank) continue;
      Send(Place(to, peers_.rank, c, number), first, second, peers_.turn);
    }
  }
  __device__ Letter From(int process, int64_t c, int number) const {
    return Await(Place(peers_.rank, process, c, number), peers_.turn);
  }

 private:
  __device__ Letter* Place(int to, int from, int64_t c, int number) const {
    const int64_t row = int64_t{peers_.turn & 1} * peers_.count + from;
    return static_cast<Letter*>(peers_.memory[to]) + (row * peers_.channels + c) * 2 + number;
  }

  BatchPeers peers_;
};

// Moments of two sets of rows as those of both (Chan et al., 1979).
struct MergedMoments {
  double rows = 0, mean = 0, deviation = 0;

  __device__ void Add(double other_rows, double other_mean, double other_deviation) {
    if (other_rows == 0) return;
    const double all = rows + other_rows, apart = other_mean - mean;
    mean += apart * (other_rows / all);
    deviation += other_deviation + apart * apart * (rows * other_rows / all);
    rows = all;
  }
};

template <typename T>
struct ShareMoments {
  const T* x;
  BatchNormBatch batch;
  Letters letters;
  float* mean;
  double* rows;

  __device__ void operator()(int64_t c, const double* sums) const {
    const Moments own = MomentsFromTerm(x, batch.rows, c, sums);
    letters.SendToAll(c, 0, __float_as_uint(own.mean), __float_as_uint(own.deviation));
    letters.SendToAll(c, 1, static_cast<uint32_t>(batch.rows), 0);
    MergedMoments all;
    for (int process = 0; process < letters.count(); ++process) {
      if (process == letters.rank()) {
        all.Add(static_cast<double>(batch.rows), own.mean, own.deviation);
        continue;
      }
      const Letter moments = letters.From(process, c, 0), count = letters.From(process, c, 1);
      all.Add(count.first, __uint_as_float(moments.first), __uint_as_float(moments.second));
    }
    mean[c] = static_cast<float>(all.mean);
    if (c == 0) *rows = all.rows;
    ScaleChannel(batch, c, all.rows, all.mean, all.deviation);
  }
};

struct ShareGradSums {
  WriteGradSums own;
  Letters letters;
  float *all_dy, *all_dy_x;

  __device__ void operator()(int64_t c, const double* sums) const {
    own(c, sums);
    const float dy = own.sum_dy[c], dy_x = own.sum_dy_x[c];
    letters.SendToAll(c, 0, __float_as_uint(dy), __float_as_uint(dy_x));
    double all = 0, all_x = 0;
    for (int process = 0; process < letters.count(); ++process) {
      if (process == letters.rank()) {
        all += dy;
        all_x += dy_x;
        continue;
      }
      const Letter letter = letters.From(process, c, 0);
      all += __uint_as_float(letter.first);
      all_x += __uint_as_float(letter.second);
    }
    all_dy[c] = static_cast<float>(all);
    all_dy_x[c] = static_cast<float>(all_x);
  }
};

absl::Status CheckPeers(const BatchPeers& peers, int64_t channels, int64_t rows) {
  const bool fits = peers.count >= 1 && peers.count <= BatchPeers::kMost && peers.rank >= 0 &&
                    peers.rank < peers.count && peers.turn > 0 && channels <= peers.channels &&
                    channels <= BatchPeers::kMostChannels && rows <= UINT32_MAX;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_norm: peers: process ", peers.rank, " of ", peers.count, ", turn ",
                     peers.turn, ", ", channels, " of ", peers.channels, " channels, ", rows,
                     " rows; allowed are ", BatchPeers::kMost, " processes, ",
                     BatchPeers::kMostChannels, " channels and ", UINT32_MAX, " rows"));
  }
  for (int process = 0; process < peers.count; ++process) {
    if (peers.memory[process] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch_norm: peers: memory of process ", process, " is null"));
    }
  }
  return absl::OkStatus();
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

absl::Status CudaRunningScales(absl::Span<const RunningNorm> norms,
                               const ExecutionContext& context) {
  if (norms.empty() || norms.size() > kMostNorms) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch norm: ", norms.size(), " norms; allowed are 1 to ", kMostNorms));
  }
  const auto any = [](const ConstTensorView& column) {
    return AnyColumn{column.data, column.dtype};
  };
  AnyNorms given{};
  int64_t most = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const RunningNorm& norm = norms[i];
    const int64_t channels = norm.mean.channels;
    for (const ConstTensorView& column : {norm.mean, norm.variance, norm.gamma, norm.beta}) {
      if (column.rows == 1 && column.channels == channels) continue;
      return absl::InvalidArgumentError(absl::StrCat("batch norm: an array of ", column.rows, " x ",
                                                     column.channels, "; 1 x ", channels,
                                                     " is needed"));
    }
    given.at[i] = {any(norm.mean), any(norm.variance), any(norm.gamma), any(norm.beta),
                   norm.epsilon,   channels,           norm.scale,      norm.shift};
    most = std::max(most, channels);
  }
  dim3 grid = GridFor(most, kChannelBlock);
  grid.y = static_cast<unsigned>(norms.size());
  VOXCONV_LAUNCH_EARLY(ScaleFromRunning, grid, kChannelBlock, 0, context, given);
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

absl::Status CudaSharedMoments(const ConstTensorView& x, const BatchNormBatch& batch,
                               const BatchPeers& peers, float* mean, double* rows,
                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckPeers(peers, x.channels, x.rows));
  BatchNormBatch own = batch;
  own.channels = x.channels;
  own.rows = x.rows;
  own.mean = own.deviation = mean;  // written, not read
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormScale(own));
  VOXCONV_RETURN_IF_ERROR(CheckChannelMoments(x, mean, mean, *context.backend));
  return WithPack(x.dtype, x.channels, {x.data}, [&]<typename T, int V>() {
    const T* data = static_cast<const T*>(x.data);
    return SumColumns(MomentTerm<T, V>{data},
                      ShareMoments<T>{data, own, Letters(peers), mean, rows}, x.rows, x.channels,
                      context);
  });
}

absl::Status CudaSharedGradSums(const BatchNormGradArgs& args, const BatchPeers& peers,
                                float* all_dy, float* all_dy_x, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormGradSums(args, *context.backend));
  const ConstTensorView& x = args.x;
  VOXCONV_RETURN_IF_ERROR(CheckPeers(peers, x.channels, x.rows));
  return WithPack(
      x.dtype, x.channels, {x.data, args.dy.data, args.y.data}, [&]<typename T, int V>() {
        const GradRows<T, V> rows(x.data, args.dy.data, args.y.data);
        return SumColumns(GradTerm<T, V>{rows, args.mean},
                          ShareGradSums{WriteGradSums{args.inverse_std, args.sum_dy, args.sum_dy_x},
                                        Letters(peers), all_dy, all_dy_x},
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
