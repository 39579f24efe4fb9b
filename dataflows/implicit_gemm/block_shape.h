// Shared memory of the block kernel's tiles, for those who choose them.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_

namespace voxconv {

// The ring of buffers that a tile of `rows` x `channels` goes through.
struct BlockRing {
  int depth_bytes;  // of an input row that a step multiplies
  int stages;
};

constexpr BlockRing RingOfBlock(int rows, int channels) {
  if (rows == 256 || channels == 96) return {.depth_bytes = 64, .stages = 4};
  if (channels == 256) return {.depth_bytes = 64, .stages = 3};
  return {.depth_bytes = 128, .stages = 3};
}

// Bytes of a block: the ring, and what it keeps of the rows (TileOffsets).
constexpr int BlockSharedBytes(int rows, int channels) {
  const BlockRing ring = RingOfBlock(rows, channels);
  const int entries = 32 * (rows + 1) + rows + 32 + rows / 16;
  const int offsets = (entries * 4 + 7) / 8 * 8 + 8;
  return ring.stages * ring.depth_bytes * (rows + channels) + offsets;
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_SHAPE_H_
