// Pooling over whole batch samples: chunks of rows in f64 first, then the chunks in order.
#include <algorithm>
#include <limits>

#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/cuda_pooling.h"
#include "backends/cuda/device_tensor.h"
#include "core/tensor_checks.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kTileChannels = 32, kTileRows = 8;
// Chunks depend on the rows alone, so that sums are the same on every device.
constexpr int64_t kMostChunks = 256, kLeastRowsPerChunk = 256;

// The first row whose sample is not in 0..samples-1 goes to `bad`, which starts past all.
__global__ void CountSamples(const Coordinate* coordinates, int64_t rows, int64_t samples,
                             unsigned long long* counts, unsigned long long* bad) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool inside = row < rows;
  const int32_t sample = inside ? coordinates[row].b : -1;
  // Neighbours are mostly of one sample: one addition for all lanes that are.
  const unsigned peers = __match_any_sync(0xffffffffu, sample);
  if (!inside) return;
  if (sample < 0 || sample >= samples) {
    atomicMin(bad, static_cast<unsigned long long>(row));
  } else if (threadIdx.x % 32 == __ffs(peers) - 1) {
    atomicAdd(&counts[sample], static_cast<unsigned long long>(__popc(peers)));
  }
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
__global__ void PoolSamples(const double* partial, const unsigned long long* counts, int64_t chunks,
                            int64_t samples, int64_t channels, PoolMode mode, T* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= samples * channels) return;
  const bool maximum = mode == PoolMode::kMax;
  const unsigned long long count = counts[i / channels];
  double sum = Identity(maximum);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum = Combine(sum, partial[chunk * samples * channels + i], maximum);
  }
  if (mode == PoolMode::kAveragePresent && count > 0) sum /= static_cast<double>(count);
  y[i] = Narrow<T>(count == 0 ? 0.0f : static_cast<float>(sum));
}

// Rows of each sample; refuses rows of samples that there are not.
absl::StatusOr<Array<unsigned long long>> CountRows(const Array<Coordinate>& rows, int64_t samples,
                                                    const ExecutionContext& context) {
  using Count = unsigned long long;
  VOXCONV_ASSIGN_OR_RETURN(Array<Count> counts, AllocateArray<Count>(samples, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<Count> bad, AllocateArray<Count>(1, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(counts.data(), 0, counts.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(bad.data(), 0xff, bad.bytes(), *context.stream));
  VOXCONV_LAUNCH(CountSamples, GridFor(rows.size(), kBlock), kBlock, 0, context, rows.data(),
                 rows.size(), samples, counts.data(), bad.data());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Count> first_bad, CopyToHost(bad, context));
  if (first_bad[0] < static_cast<Count>(rows.size())) {
    Coordinate row;
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(&row, MemorySpace::kHost,
                                                  rows.data() + first_bad[0], rows.space(),
                                                  sizeof(row), *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    return CheckSample(row.b, samples);
  }
  return counts;
}

}  // namespace

absl::Status CudaGlobalPool(const Array<Coordinate>& rows, PoolMode mode, const ConstTensorView& x,
                            const TensorView& y, const ExecutionContext& context) {
  const int64_t samples = y.rows, channels = y.channels;
  VOXCONV_ASSIGN_OR_RETURN(const Array<unsigned long long> counts,
                           CountRows(rows, samples, context));
  if (samples == 0 || channels == 0) return absl::OkStatus();
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

}  // namespace voxconv
