// The kernels of fused gather, matmul and scatter (FGMS).
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/types.h"

namespace voxconv {

// Which rows a kernel's tiles multiply: PCEngine's FGMS_ptr (Section 5). It travels among the
// kernel's parameters, so that no launch waits for a copy; a launch of more offsets than fit is cut
// into several.
struct FgmsSegments {
  static constexpr int kMax = 96;

  int32_t count = 0;
  int32_t offset[kMax];        // kernel offset of each segment
  int32_t tile_ptr[kMax + 1];  // first tile of each segment; the last is the number of tiles
  int64_t pair_begin[kMax];
  int64_t pair_end[kMax];  // tiles behind it multiply zeros and add nothing: padding

  int32_t num_tiles() const { return tile_ptr[count]; }
};

// What happens to a row of the sum.
enum class FgmsWrite {
  kStore,      // each row is in one pair, all of which are in the launch
  kAdd,        // each row is in one pair of the launch at most
  kAddAtomic,  // otherwise: in an order that varies
};

// All in device memory.
struct FgmsOperands {
  const int32_t* in = nullptr;  // pairs
  const int32_t* out = nullptr;
  const void* input = nullptr;    // [N_in, c_in]
  const void* weights = nullptr;  // [K, c_in, c_out]
  float* sum = nullptr;           // [N_out, c_out]
  int64_t c_in = 0, c_out = 0;
  Precision precision = Precision::kF32;  // input and weights are stored as StorageOf(precision)
  FgmsWrite write = FgmsWrite::kAddAtomic;
  bool vector_sum = false;  // c_out is a multiple of 4 and rows of the sum are aligned
};

// Tile shapes of one shape and precision: what a plan cuts the pairs into.
struct FgmsTile {
  bool tensor_cores = false;
  int pairs = 0;
  int channels = 0;  // output channels
};
// `compute_capability` is 10 * major + minor. Tensor cores for tf32, f16 and bf16 from 8.0 on.
FgmsTile ChooseFgmsTile(Precision precision, int64_t c_out, int compute_capability);

// sum[out[i]] += (or =) input[in[i]] * weights[k] for the pairs i of every segment. f32 is exact
// IEEE arithmetic but for the order of additions.
absl::Status LaunchFgms(const FgmsTile& tile, const FgmsSegments& segments,
                        const FgmsOperands& operands, const ExecutionContext& context);

// The two ways to do so, called by LaunchFgms.
absl::Status LaunchFgmsMma(const FgmsTile& tile, const FgmsSegments& segments,
                           const FgmsOperands& operands, const ExecutionContext& context);
absl::Status LaunchFgmsSimt(const FgmsTile& tile, const FgmsSegments& segments,
                            const FgmsOperands& operands, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_CUDA_H_
