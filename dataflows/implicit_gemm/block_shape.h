// SPDX-License-Identifier: Apache-2.0
// Shared memory of the block kernel's tiles. The code that chooses a tile needs it.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_

namespace voxconv {

// The ring of shared-memory buffers of a block.
struct BlockRing {
  int depth_bytes;  // bytes of each input row that one step multiplies
  int stages;       // buffers of the ring
};

// The ring for a tile of `channels` output channels.
constexpr BlockRing RingOfBlock(int channels) {
  if (channels == 96) return {.depth_bytes = 64, .stages = 4};
  return {.depth_bytes = 128, .stages = 3};
}

// Bytes of shared memory of a block: the ring and a TileOffsets.
constexpr int BlockSharedBytes(int rows, int channels) {
  const BlockRing ring = RingOfBlock(channels);
  const int entries = 32 * (rows + 1) + rows + 32 + rows / 16;
  const int offsets = (entries * 4 + 7) / 8 * 8 + 8;
  return ring.stages * ring.depth_bytes * (rows + channels) + offsets;
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_
