// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/plan.h"

#include <algorithm>

namespace voxconv {
namespace {

// Map bytes that a gather or scatter of `pass` reads. Every channel tile walks the map again
// (Minuet Algorithm 1). Of a table a walk reads the columns of the pass's offsets, in weight order
// one after the other; of coded CSR all codes, in weight order once an offset.
int64_t MapBytes(const BufferPass& pass, const KernelMap& map, const MoveRule& rule, int64_t rows,
                 int64_t channels, int64_t tile) {
  tile = MoveRule::TileOf(tile, channels);
  const int64_t tiles = (channels + tile - 1) / tile;
  const int64_t offsets = static_cast<int64_t>(pass.offsets.size());
  if (rule.layout == PositionLayout::kDenseTables) {
    return tiles * rows * offsets * static_cast<int64_t>(sizeof(int32_t));
  }
  const int64_t walks = rule.order == MoveOrder::kWeight ? offsets : 1;
  return tiles * walks *
         ((rows + 1) * static_cast<int64_t>(sizeof(int32_t)) +
          map.num_pairs() * static_cast<int64_t>(sizeof(uint32_t)));
}

}  // namespace

// Locality order reads an input row at most once a pass and writes each output row once a pass;
// weight order reads an input row, and reads and writes an output row, once a pair (TorchSparse
// Section 4.3.2). Both write and read the buffers once.
Counters CountWork(const Schedule& schedule, const KernelMap& map, const ConvShape& shape,
                   const MoveRule& rule) {
  const int64_t element = SizeOf(shape.types.input);
  const int64_t in_row = shape.c_in * element;
  const int64_t out_row = shape.c_out * element;
  const int64_t weight = shape.c_in * out_row;
  const bool locality = rule.order != MoveOrder::kWeight;

  Counters work;
  work.true_pairs = map.num_pairs();
  bool output_started = schedule.identity_offset >= 0;
  if (output_started) {
    work.padded_pairs += map.num_outputs();
    work.launches += 1;
    work.bytes_read += map.num_inputs() * in_row + weight;
    work.bytes_written += map.num_outputs() * out_row;
  } else if (!locality || schedule.passes.empty()) {
    work.bytes_written += map.num_outputs() * out_row;  // zeros
  }
  for (const BufferPass& pass : schedule.passes) {
    work.padded_pairs += pass.rows;
    work.launches += static_cast<int64_t>(pass.matmuls.size());
    work.bytes_read += (locality ? std::min(pass.pairs, map.num_inputs()) : pass.pairs) * in_row;
    work.bytes_read += MapBytes(pass, map, rule, map.num_inputs(), shape.c_in, rule.gather_tile);
    work.bytes_written += pass.rows * in_row;
    for (const Matmul& matmul : pass.matmuls) {
      work.bytes_read += matmul.rows() * in_row + matmul.offsets.size() * weight;
      work.bytes_written += matmul.rows() * out_row;
    }
    const int64_t updated = locality ? map.num_outputs() : pass.pairs;
    work.bytes_read += pass.pairs * out_row;
    work.bytes_read += MapBytes(pass, map, rule, map.num_outputs(), shape.c_out, rule.scatter_tile);
    work.bytes_read += output_started || !locality ? updated * out_row : 0;
    work.bytes_written += updated * out_row;
    output_started = true;
  }
  return work;
}

}  // namespace voxconv
