// SPDX-License-Identifier: Apache-2.0
// The kernels of implicit GEMM on CUDA. There are four ways to run a tile of output rows.
//   warp:      A warp has 16 rows. It gathers inputs straight into registers. All weights lie in
//              shared memory. It uses tensor cores and is for few channels.
//   block:     A block has 64 or 128 rows. Inputs and weights go through a ring of shared-memory
//              buffers. It uses tensor cores and is for any number of channels.
//   warpgroup: A block has 128 or 192 rows. Whole warpgroups multiply, and other warps copy. It
//              needs compute capability 9.0. In f32 it multiplies sums of two tf32 numbers.
//   fma:       As block, but on the CUDA cores. It is for f32 in IEEE arithmetic, and for devices
//              on which the others cannot run.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/types.h"

namespace voxconv {

// The arguments of every kernel. All pointers are to device memory of the caller. The launch
// function determines the dtype of the elements.
struct ImplicitGemmArgs {
  static constexpr int kMaxSplits = 32;

  // The base and the row size of input and weights are multiples of 16 bytes. For the warp kernel,
  // input rows of 8 bytes are allowed too.
  const void* input = nullptr;  // [N_in, c_in], rows input_row_bytes apart
  uint32_t input_row_bytes = 0;
  // [K * c_in, ld_weights]. For the warpgroup kernel in tf32: [K, c_out, ld_weights], rounded. In
  // f32: [2 * K, c_out, ld_weights], rounded, and then the remainders (transpose_weights.h).
  const void* weights = nullptr;
  void* output = nullptr;  // [N_out, c_out], rows ld_output apart
  int ld_output = 0;
  float* partial = nullptr;  // [num_parts(), N_out, c_out]; null for one part
  // The input row of an output row under offset k. It is table[row * K + k] if `ordered` is false.
  // Otherwise it is table[k * N_out + position], for the row's position in its split's order.
  const int32_t* table = nullptr;
  const uint32_t* masks = nullptr;  // [splits, N_out, words]; by position if ordered, else by row
  bool ordered = false;
  const int32_t* row_order = nullptr;  // [splits, N_out]; null: rows as given
  int64_t num_outputs = 0;
  int num_offsets = 0;
  int words = 1;
  int c_in = 0;
  int c_out = 0;
  int ld_weights = 0;  // >= c_out; for the warpgroup kernel in tf32 and f32, c_in
  int splits = 1;
  // Block kernel only: this many blocks share the offsets of one tile of a split.
  int k_parts = 1;
  // Warpgroup kernel only: up to `shares` blocks share the offsets of each of the first
  // `shared_tiles` tiles. Each block has at least share_offsets of them. The blocks add up their
  // sums through shared_sums, [shared_tiles, shares, rows of a tile, channels of a tile].
  int shares = 1;
  int shared_tiles = 0;
  int share_offsets = 1;
  float* shared_sums = nullptr;
  int32_t split_ptr[kMaxSplits + 1] = {};  // split s has the offsets [split_ptr[s], split_ptr[s+1])
  // The epilogue (core/dataflow.h). Partial sums are stored without it.
  const float* scale = nullptr;
  const float* shift = nullptr;
  const void* residual = nullptr;  // [N_out, c_out]
  bool relu = false;
  // ForwardArgs::settled. If set, a kernel may read the table, the masks, the row order, the
  // weights, scale and shift before it calls AwaitEarlierKernels.
  bool settled = false;
  // Whether c_out is a multiple of 8, and the addresses of output rows, residual, scale and shift
  // are multiples of 16 bytes.
  bool vector_stores = false;

  constexpr int num_parts() const { return splits * k_parts; }
};

enum class ImplicitGemmKernel { kWarp, kBlock, kWarpgroup, kFma };
// By the instruction that multiplies: "mma of a warp", "mma of a block", "wgmma", "fma".
absl::string_view ToString(ImplicitGemmKernel kernel);

// How a plan runs one shape.
struct ImplicitGemmTile {
  ImplicitGemmKernel kernel = ImplicitGemmKernel::kBlock;
  int rows = 0;             // output rows of a block; for kWarp, of a warp
  int channels = 0;         // output channels of a block
  int skip_rows = 0;        // rows that share one set of offsets to multiply
  int64_t padded_c_in = 0;  // channels of an input row as the kernel takes it
  int k_parts = 1;          // ImplicitGemmArgs explains this and the next three
  int shares = 1;
  int shared_tiles = 0;
  int share_offsets = 1;
};

// What a tile is chosen by.
struct ImplicitGemmChoice {
  bool warpgroups = true;   // whether the warpgroup kernel may be chosen
  bool splits_f32 = false;  // whether it may be chosen in f32
  // Rows of a block: 64, 128 or 192. Of 128 and 192, the warpgroup kernel takes what
  // WarpgroupShapeOf has. 16: the warp kernel. 0: automatic.
  int64_t tile = 0;
  int64_t tile_channels = 0;  // output channels of a block; 0: automatic
  int num_offsets = 0;        // offsets of the largest split
  int splits = 1;
  int64_t num_outputs = 0;
};

struct ImplicitGemmDevice {
  int compute_capability = 0;
  int shared_memory = 0;  // bytes that one block may have
  int multiprocessors = 0;
  bool warpgroup_products = false;  // compute capability 9.0, and compiled for sm_90a
};

// The tile for a shape. It is the tile that `choice` asks for, if the device and the sizes allow
// it.
ImplicitGemmTile ChooseImplicitGemmTile(const ImplicitGemmChoice& choice, Precision precision,
                                        int64_t c_in, int64_t c_out,
                                        const ImplicitGemmDevice& device);

// The shape of the warpgroup kernel's blocks.
struct WarpgroupShape {
  int rows;    // of a tile
  int blocks;  // that a multiprocessor has at a time
};
// The registers decide. In tf32 a thread also holds inputs that it rounds. In f32 it holds the sums
// of a step too. One block of 192 rows leaves registers for a scout (warpgroup_config.cuh), which
// two blocks of 128 rows do not. For 96 and 128 channels of 16 bits the kernel has both shapes;
// `short_tiles` asks for 128 rows.
constexpr WarpgroupShape WarpgroupShapeOf(Precision precision, int channels,
                                          bool short_tiles = false) {
  if (precision == Precision::kF32) return {.rows = channels == 64 ? 192 : 128, .blocks = 1};
  if (precision == Precision::kTf32 && channels == 128) return {.rows = 192, .blocks = 1};
  if (precision != Precision::kTf32 && (channels == 96 || channels == 128) && !short_tiles) {
    return {.rows = 192, .blocks = 1};
  }
  return {.rows = 128, .blocks = channels == 256 ? 1 : 2};
}

// The Launch functions below queue their work on the context's stream and do not synchronise it.

// Copies [groups, rows, columns], whose rows begin `from_stride` elements apart, to [groups,
// padded_rows, padded_columns] and fills the rest with zeros. Elements have 2 or 4 bytes. Both
// arrays lie in device memory.
absl::Status LaunchPad(const void* from, int64_t from_stride, void* to, int64_t groups,
                       int64_t rows, int64_t columns, int64_t padded_rows, int64_t padded_columns,
                       int64_t element_bytes, const ExecutionContext& context);

// Runs tiles of kFma. instances.h has the other kernels.
absl::Status LaunchImplicitGemmFma(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                   DType dtype, const ExecutionContext& context);

// Computes output = epilogue(partial[0] + partial[1] + ...). It adds in this order.
absl::Status LaunchSumPartials(const ImplicitGemmArgs& args, DType dtype,
                               const ExecutionContext& context);

// The number of products of a row and an offset if groups of `skip_rows` rows skip offsets
// together. This function waits for the stream.
absl::StatusOr<int64_t> CountPaddedPairs(const ImplicitGemmArgs& args, int skip_rows,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_KERNELS_H_
