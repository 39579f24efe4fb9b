// The kernels of implicit GEMM on CUDA: four ways to run a tile of output rows.
//   warp:  16 rows a warp, inputs gathered straight into registers, all weights in shared memory;
//          tensor cores; for few channels.
//   block: 64 to 256 rows a block, inputs and weights through a ring of shared-memory buffers;
//          tensor cores; for any number of channels.
//   warpgroup: 128 or 256 rows a block, by products of whole warpgroups, copied by warps of their
//          own; compute capability 9.0.
//   fma:   as block, on the CUDA cores: f32 in IEEE arithmetic, and devices without what the others
//          need.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/types.h"

namespace voxconv {

// All in device memory but for split_ptr. Elements are stored as the dtype that goes with
// the call.
struct ImplicitGemmArgs {
  static constexpr int kMaxSplits = 32;

  const void* input = nullptr;    // [N_in, c_in], rows and base of whole 16-byte vectors (*)
  const void* weights = nullptr;  // [K * c_in, ld_weights], likewise
  void* output = nullptr;         // [N_out, c_out]
  float* partial = nullptr;       // [num_parts(), N_out, c_out] where there is more than one
  // Input row of output `row`, at `position` of its split's order, under offset k:
  // table[row * K + k] or, where the table is ordered, table[k * N_out + position].
  const int32_t* table = nullptr;
  const uint32_t* masks = nullptr;  // [splits, N_out, words], by position where ordered
  bool ordered = false;
  const int32_t* row_order = nullptr;  // [splits, N_out]; null: rows as given
  int64_t num_outputs = 0;
  int num_offsets = 0;
  int words = 1;
  int c_in = 0;
  int c_out = 0;
  int ld_weights = 0;  // >= c_out
  int splits = 1;
  int k_parts = 1;  // blocks that share the offsets of one tile of a split; block kernel only
  // Warpgroup kernel only: up to `shares` blocks share the offsets of each of the first
  // `shared_tiles` tiles, with at least share_offsets each, and add up through shared_sums,
  // [shared_tiles, shares, rows of a tile, channels of a tile].
  int shares = 1;
  int shared_tiles = 0;
  int share_offsets = 1;
  float* shared_sums = nullptr;
  int32_t split_ptr[kMaxSplits + 1] = {};
  // core/dataflow.h, Epilogue; not applied to partial sums.
  const float* scale = nullptr;
  const float* shift = nullptr;
  const void* residual = nullptr;  // [N_out, c_out]
  bool relu = false;
  // ForwardArgs::settled: what may be read before AwaitEarlierKernels is the table with its masks
  // and order, the weights, scale and shift.
  bool settled = false;
  // c_out is a multiple of 8; output, residual, scale and shift are of 16 bytes.
  bool vector_stores = false;

  constexpr int num_parts() const { return splits * k_parts; }
};
// (*) The warp kernel also takes rows of 8 bytes.

enum class ImplicitGemmKernel { kWarp, kBlock, kWarpgroup, kFma };

// How a plan runs one shape.
struct ImplicitGemmTile {
  ImplicitGemmKernel kernel = ImplicitGemmKernel::kBlock;
  int rows = 0;             // output rows of a block; of a warp for kWarp
  int channels = 0;         // output channels of a block
  int skip_rows = 0;        // rows that share one set of offsets to multiply
  int64_t padded_c_in = 0;  // channels of an input row as the kernel takes it
  int k_parts = 1;          // these four: see ImplicitGemmArgs
  int shares = 1;
  int shared_tiles = 0;
  int share_offsets = 1;
};

struct ImplicitGemmChoice {
  bool warpgroups = true;     // use the warpgroup kernel where it is there
  int64_t tile = 0;           // rows of a block, 64 to 256; 16: the warp kernel; 0: chosen here
  int64_t tile_channels = 0;  // output channels of a block; 0: chosen here
  int num_offsets = 0;        // of the largest split
  int splits = 1;
  int64_t num_outputs = 0;
};

struct ImplicitGemmDevice {
  int compute_capability = 0;
  int shared_memory = 0;  // of a block
  int multiprocessors = 0;
  bool warpgroup_products = false;  // compute capability 9.0, and compiled for sm_90a
};

// The tile for a shape: as asked for where the device and the sizes allow it.
ImplicitGemmTile ChooseImplicitGemmTile(const ImplicitGemmChoice& choice, Precision precision,
                                        int64_t c_in, int64_t c_out,
                                        const ImplicitGemmDevice& device);

// Copies [groups, rows, columns] to [groups, padded_rows, padded_columns], zeros behind; elements
// of 2 or 4 bytes.
absl::Status LaunchPad(const void* from, void* to, int64_t groups, int64_t rows, int64_t columns,
                       int64_t padded_rows, int64_t padded_columns, int64_t element_bytes,
                       const ExecutionContext& context);

// For tiles of kFma; instances.h has the others.
absl::Status LaunchImplicitGemmFma(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                   DType dtype, const ExecutionContext& context);

// output = epilogue(partial[0] + partial[1] + ...), in that order.
absl::Status LaunchSumPartials(const ImplicitGemmArgs& args, DType dtype,
                               const ExecutionContext& context);

// Rows times offsets that groups of `skip_rows` rows multiply. Waits for the stream.
absl::StatusOr<int64_t> CountPaddedPairs(const ImplicitGemmArgs& args, int skip_rows,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_
