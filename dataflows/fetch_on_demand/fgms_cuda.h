// SPDX-License-Identifier: Apache-2.0
// The kernels of fused gather, matmul and scatter (FGMS).
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/types.h"

namespace voxconv {

// Which pairs the tiles of a kernel multiply: PCEngine's FGMS_ptr (Section 5). It is a kernel
// parameter, so that no launch waits for a copy. A launch of more than kMax offsets is cut into
// several.
struct FgmsSegments {
  static constexpr int kMax = 96;

  int32_t count = 0;
  int32_t offset[kMax];        // kernel offset of each segment
  int32_t tile_ptr[kMax + 1];  // first tile of each segment; the last is the number of tiles
  int64_t pair_begin[kMax];
  int64_t pair_end[kMax];  // tiles behind it are padding: they multiply zeros and add nothing

  int32_t num_tiles() const { return tile_ptr[count]; }
};

// How a kernel writes a row of the sum.
enum class FgmsWrite {
  kStore,      // stores: each row is in one pair, and the launch has all pairs
  kAdd,        // adds: each row is in at most one pair of the launch
  kAddAtomic,  // adds atomically, in an order that varies from run to run
};

// All pointers are to device memory of the caller.
struct FgmsOperands {
  const int32_t* in = nullptr;  // pairs
  const int32_t* out = nullptr;
  const void* input = nullptr;    // [N_in, c_in]
  const void* weights = nullptr;  // [K, c_in, c_out]
  float* sum = nullptr;           // [N_out, c_out]
  int64_t c_in = 0, c_out = 0;
  // The dtype of input and weights is StorageOf(precision).
  Precision precision = Precision::kF32;
  FgmsWrite write = FgmsWrite::kAddAtomic;
  bool vector_sum = false;  // c_out is a multiple of 4 and rows of the sum are aligned
};

// The tile into which a plan cuts the pairs.
struct FgmsTile {
  bool tensor_cores = false;
  int pairs = 0;
  int channels = 0;  // output channels
};
// The tile for one precision and number of output channels. `compute_capability` is 10 * major +
// minor. Tiles use tensor cores for tf32, f16 and bf16 from compute capability 8.0 on.
FgmsTile ChooseFgmsTile(Precision precision, int64_t c_out, int compute_capability);

// Computes sum[out[i]] += (or =) input[in[i]] * weights[k] for the pairs i of every segment. f32
// products and sums are in IEEE arithmetic, in an unspecified order of additions. This function
// queues its work on the context's stream and does not synchronise it.
absl::Status LaunchFgms(const FgmsTile& tile, const FgmsSegments& segments,
                        const FgmsOperands& operands, const ExecutionContext& context);

// LaunchFgms calls one of these: the first for tiles with tensor cores, the second for the others.
absl::Status LaunchFgmsMma(const FgmsTile& tile, const FgmsSegments& segments,
                           const FgmsOperands& operands, const ExecutionContext& context);
absl::Status LaunchFgmsSimt(const FgmsTile& tile, const FgmsSegments& segments,
                            const FgmsOperands& operands, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_
