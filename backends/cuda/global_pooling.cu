// SPDX-License-Identifier: Apache-2.0
// Pooling over whole batch samples: chunks of rows in f64 first, then the chunks in order. And its
// gradient.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_pooling.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kTileChannels = 32, kTileRows = 8;
// Chunks depend on the rows alone, so that sums are the same on every device.
constexpr int64_t kMostChunks = 256, kLeastRowsPerChunk = 256;

using Count = unsigned long long;

// Rows of other samples than 0..samples-1 are not counted.
__global__ void CountSamples(const Coordinate* coordinates, int64_t rows, int64_t samples,
                             Count* counts) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool inside = row < rows;
  const int32_t sample = inside ? coordinates[row].b : -1;
  // Neighbours are mostly of one sample: one addition for all lanes that are.
  const unsigned peers = __match_any_sync(0xffffffffu, sample);
  if (sample < 0 || sample >= samples || threadIdx.x % 32 != __ffs(peers) - 1) return;
  atomicAdd(&counts[sample], static_cast<Count>(__popc(peers)));
}

__device__ double Identity(bool maximum) {
  return maximum ? -std::numeric_limits<double>::infinity() : 0.0;
}
// A NaN is taken and stays.
__device__ double Combine(double sum, double v, bool maximum) {
  if (!maximum) return sum + v;
  return v > sum || v != v ? v : sum;
}

// partial[(chunk * samples + b) * channels + c]. Grid: (chunks, tiles of channels); block:
// (channels, rows).
template <typename T>
__global__ void PoolChunks(const Coordinate* coordinates, const T* x, int64_t rows,
                           int64_t rows_per_chunk, int64_t samples, int64_t channels, bool maximum,
                           double* partial) {
  __shared__ double tile[kTileRows][kTileChannels + 1];
  __shared__ int lowest, highest;  // samples of this chunk
  const int64_t begin = blockIdx.x * rows_per_chunk;
  const int64_t end = min(rows, begin + rows_per_chunk);
  const int thread = threadIdx.y * kTileChannels + threadIdx.x;
  if (thread == 0) {
    lowest = INT_MAX;
    highest = -1;
  }
  __syncthreads();
  for (int64_t row = begin + thread; row < end; row += kTileRows * kTileChannels) {
    atomicMin(&lowest, coordinates[row].b);
    atomicMax(&highest, coordinates[row].b);
  }
  __syncthreads();
  const int64_t c = int64_t{blockIdx.y} * kTileChannels + threadIdx.x;
  for (int64_t sample = 0; sample < samples; ++sample) {
    double sum = Identity(maximum);
    if (sample >= lowest && sample <= highest) {
      for (int64_t row = begin + threadIdx.y; row < end && c < channels; row += kTileRows) {
        if (coordinates[row].b != sample) continue;
        sum = Combine(sum, Widen(x[row * channels + c]), maximum);
      }
      tile[threadIdx.y][threadIdx.x] = sum;
      __syncthreads();
      for (int r = 1; r < kTileRows && threadIdx.y == 0; ++r) {
        sum = Combine(sum, tile[r][threadIdx.x], maximum);
      }
      __syncthreads();
    }
    if (threadIdx.y == 0 && c < channels) {
      partial[(blockIdx.x * samples + sample) * channels + c] = sum;
    }
  }
}

template <typename T>
__global__ void PoolSamples(const double* partial, const Count* counts, int64_t chunks,
                            int64_t samples, int64_t channels, PoolMode mode, T* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= samples * channels) return;
  const bool maximum = mode == PoolMode::kMax;
  const Count count = counts[i / channels];
  double sum = Identity(maximum);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum = Combine(sum, partial[chunk * samples * channels + i], maximum);
  }
  if (mode == PoolMode::kAveragePresent && count > 0) sum /= static_cast<double>(count);
  y[i] = Narrow<T>(count == 0 ? 0.0f : static_cast<float>(sum));
}

// Rows of each sample. Queued; does not synchronise.
absl::StatusOr<Array<Count>> QueueCounts(const Array<Coordinate>& rows, int64_t samples,
                                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Count> counts, AllocateArray<Count>(samples, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(counts.data(), 0, counts.bytes(), *context.stream));
  VOXCONV_LAUNCH(CountSamples, GridFor(rows.size(), kBlock), kBlock, 0, context, rows.data(),
                 rows.size(), samples, counts.data());
  return counts;
}

// GlobalPool refuses rows of other samples. The gradient of such rows is 0.
__device__ bool IsSample(int32_t sample, int64_t samples) {
  return sample >= 0 && sample < samples;
}

// The gradient of a sample goes to all its rows, divided by their number if `counts` is not null.
template <typename T, int V>
__global__ void SpreadSamples(const Coordinate* coordinates, const Count* counts, const T* dy,
                              int64_t samples, int64_t rows, int64_t packs, T* dx) {
  const auto* from = reinterpret_cast<const Pack<T, V>*>(dy);
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    const int32_t sample = coordinates[row].b;
    const bool inside = IsSample(sample, samples);
    const float share = inside && counts != nullptr ? static_cast<float>(counts[sample]) : 1.0f;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      Pack<T, V> in{};
      if (inside) in = from[sample * packs + c];
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) out.v[i] = Narrow<T>(Widen(in.v[i]) / share);
      reinterpret_cast<Pack<T, V>*>(dx)[row * packs + c] = out;
    }
  }
}

// first[sample * channels + c]: the first row of the sample whose value is y's. Starts past all.
template <typename T, int V>
__global__ void FindMaxima(const Coordinate* coordinates, const T* x, const T* y, int64_t samples,
                           int64_t rows, int64_t packs, Count* first) {
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    const int32_t sample = coordinates[row].b;
    if (!IsSample(sample, samples)) continue;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      const Pack<T, V> value = reinterpret_cast<const Pack<T, V>*>(x)[row * packs + c];
      const Pack<T, V> largest = reinterpret_cast<const Pack<T, V>*>(y)[sample * packs + c];
      for (int i = 0; i < V; ++i) {
        if (Widen(value.v[i]) != Widen(largest.v[i])) continue;
        Count* const found = &first[(sample * packs + c) * V + i];
        // It only falls. So an old value leads at most to an atomic that changes nothing. Without
        // this, the rows of a channel that is 0 everywhere would queue for one address.
        if (static_cast<Count>(row) < __ldcg(found)) atomicMin(found, static_cast<Count>(row));
      }
    }
  }
}

template <typename T, int V>
__global__ void SpreadMaxima(const Coordinate* coordinates, const Count* first, const T* dy,
                             int64_t samples, int64_t rows, int64_t packs, T* dx) {
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    const int32_t sample = coordinates[row].b;
    const bool inside = IsSample(sample, samples);
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) {
        const int64_t at = (sample * packs + c) * V + i;
        const bool takes = inside && first[at] == static_cast<Count>(row);
        out.v[i] = takes ? dy[at] : Narrow<T>(0.0f);
      }
      reinterpret_cast<Pack<T, V>*>(dx)[row * packs + c] = out;
    }
  }
}

}  // namespace

absl::Status CudaGlobalPool(const Array<Coordinate>& rows, PoolMode mode, const ConstTensorView& x,
                            const TensorView& y, const ExecutionContext& context) {
  const int64_t samples = y.rows, channels = y.channels;
  if (samples == 0 || channels == 0) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(const Array<Count> counts, QueueCounts(rows, samples, context));
  const int64_t rows_per_chunk = std::max(kLeastRowsPerChunk, CeilDiv(x.rows, kMostChunks));
  const int64_t chunks = CeilDiv(x.rows, rows_per_chunk);
  VOXCONV_ASSIGN_OR_RETURN(Array<double> partial,
                           AllocateArray<double>(chunks * samples * channels, context));
  return WithStoredType(x.dtype, [&]<typename T>() {
    const dim3 grid(static_cast<unsigned>(chunks),
                    static_cast<unsigned>(CeilDiv(channels, kTileChannels)));
    VOXCONV_LAUNCH(PoolChunks<T>, grid, dim3(kTileChannels, kTileRows), 0, context, rows.data(),
                   static_cast<const T*>(x.data), x.rows, rows_per_chunk, samples, channels,
                   mode == PoolMode::kMax, partial.data());
    VOXCONV_LAUNCH(PoolSamples<T>, GridFor(samples * channels, kBlock), kBlock, 0, context,
                   partial.data(), counts.data(), chunks, samples, channels, mode,
                   static_cast<T*>(y.data));
    return absl::OkStatus();
  });
}

absl::Status CudaGlobalPoolGrad(const Array<Coordinate>& rows, PoolMode mode,
                                const ConstTensorView& x, const ConstTensorView& y,
                                const ConstTensorView& dy, const TensorView& dx,
                                const ExecutionContext& context) {
  const int64_t samples = dy.rows, channels = dx.channels;
  Array<Count> counts, first;
  if (mode == PoolMode::kAveragePresent) {
    VOXCONV_ASSIGN_OR_RETURN(counts, QueueCounts(rows, samples, context));
  } else if (mode == PoolMode::kMax) {
    VOXCONV_ASSIGN_OR_RETURN(first, AllocateArray<Count>(samples * channels, context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(first.data(), 0xff, first.bytes(), *context.stream));
  }
  return WithPack(x.dtype, channels, {x.data, y.data, dy.data, dx.data}, [&]<typename T, int V>() {
    const int64_t packs = channels / V;
    const RowLaunch launch(dx.rows, packs, context);
    const T* from = static_cast<const T*>(dy.data);
    T* to = static_cast<T*>(dx.data);
    if (mode != PoolMode::kMax) {
      VOXCONV_LAUNCH((SpreadSamples<T, V>), launch.grid, launch.block, 0, context, rows.data(),
                     counts.data(), from, samples, dx.rows, packs, to);
      return absl::OkStatus();
    }
    VOXCONV_LAUNCH((FindMaxima<T, V>), launch.grid, launch.block, 0, context, rows.data(),
                   static_cast<const T*>(x.data), static_cast<const T*>(y.data), samples, dx.rows,
                   packs, first.data());
    VOXCONV_LAUNCH((SpreadMaxima<T, V>), launch.grid, launch.block, 0, context, rows.data(),
                   first.data(), from, samples, dx.rows, packs, to);
    return absl::OkStatus();
  });
}

}  // namespace voxconv
