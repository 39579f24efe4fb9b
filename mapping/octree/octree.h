// SPDX-License-Identifier: Apache-2.0
// An octree over the voxels of a batch, in the memory of either backend, and the lookup of a voxel.
// H-CNN (Abstract, Section 1) compares its perfect hashing with octrees.
//
// Depth 0 has a root for each sample with voxels. Depth d + 1 has those children of depth d's nodes
// that have voxels. The nodes of the last depth are the voxels. The nodes of a depth are in
// z-order, sample by sample, and are numbered in this order. A node is stored only as links to its
// children. Level 0 of the links leads from the samples to the roots. Level d leads from the eight
// octants of every node of depth d - 1 to the nodes of depth d.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/coordinate_set.h"

namespace voxconv {

inline constexpr int kMaxOctreeDepth = kKeyAxisBits;

// The cube that the tree divides. It starts at the lower corner of the voxels' bounds and has
// 2^depth lattice points of their tensor stride along every axis. The depth is the least that
// covers the longest edge of the bounds. It is trivially copyable, so that kernels take it by
// value.
class OctreeCube {
 public:
  OctreeCube() = default;
  explicit OctreeCube(const CoordinateSet& voxels);

  // constexpr makes these functions callable in device code.
  constexpr int depth() const { return depth_; }
  constexpr int32_t num_samples() const { return num_samples_; }
  // Bits of the largest z-order key.
  int key_bits() const;

  // Sets `cell` to the cell of a position, in units of the lattice. Returns false if the position
  // is outside the voxels' bounds or between lattice points, or if the sample does not exist. The
  // values in `cell` are then meaningless. Any position is allowed.
  constexpr bool ToCell(const Coordinate& c, uint32_t cell[3]) const {
    const int32_t position[3] = {c.x, c.y, c.z};
    // As unsigned numbers, values below the lower bound are far above the upper one.
    bool inside = static_cast<uint32_t>(c.b) < static_cast<uint32_t>(num_samples_);
    for (int axis = 0; axis < 3; ++axis) {
      const Axis& a = axes_[axis];
      const uint32_t distance = static_cast<uint32_t>(position[axis]) - static_cast<uint32_t>(a.lo);
      // Most strides are powers of two, and divisions are slow.
      cell[axis] = a.stride_bits >= 0 ? distance >> a.stride_bits : distance / a.stride;
      inside = inside && distance <= a.span && cell[axis] * a.stride == distance;
    }
    return inside;
  }

  // The z-order key: the sample in the high bits, then 3 bits for each depth, from the root on.
  constexpr uint64_t ZOrderKey(int32_t sample, const uint32_t cell[3]) const {
    return static_cast<uint64_t>(sample) << 3 * depth_ | Spread(cell[0]) << 2 |
           Spread(cell[1]) << 1 | Spread(cell[2]);
  }
  // The z-order key of a voxel of the set.
  constexpr uint64_t ZOrderKey(const Coordinate& voxel) const {
    uint32_t cell[3] = {0, 0, 0};
    ToCell(voxel, cell);
    return ZOrderKey(voxel.b, cell);
  }

 private:
  struct Axis {
    int32_t lo = 0;
    uint32_t span = 0;  // of the bounds
    uint32_t stride = 1;
    int stride_bits = 0;  // its log2, or -1
  };

  // Moves bit i to bit 3 i. `v` is below 2^kMaxOctreeDepth.
  static constexpr uint64_t Spread(uint64_t v) {
    v = (v | v << 32) & 0x001f00000000ffff;
    v = (v | v << 16) & 0x001f0000ff0000ff;
    v = (v | v << 8) & 0x100f00f00f00f00f;
    v = (v | v << 4) & 0x10c30c30c30c30c3;
    return (v | v << 2) & 0x1249249249249249;
  }

  Axis axes_[3];
  int depth_ = 0;
  int32_t num_samples_ = 0;
};

// The number of set bits of v. The base x86-64 instruction set has no instruction for it, and
// std::popcount is then a call that looks up every byte.
constexpr uint32_t CountBits(uint32_t v) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(static_cast<int>(v)));
#else
  v -= v >> 1 & 0x55555555;
  v = (v & 0x33333333) + (v >> 2 & 0x33333333);
  return ((v + (v >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
#endif
}

// The links of 32 octants (those of four nodes), or of 32 samples. `present` has a bit for each
// octant with a child. `first` is the number of the first child, and the others follow it. A word
// has 8 bytes, so that a node takes two.
struct alignas(8) LinkWord {
  static constexpr int kOctants = 32;
  static constexpr int kNodes = kOctants / 8;
  static constexpr uint8_t kEmptyByte = 0;
  // Links to the last depth give positions in Octree::rows.
  static constexpr bool kNumbersLeaves = true;

  uint32_t present, first;

  static constexpr int32_t Follow(const LinkWord* level, uint64_t octant) {
    const LinkWord word = level[octant / kOctants];
    const uint32_t bit = 1u << octant % kOctants;
    const auto child = static_cast<int32_t>(word.first + CountBits(word.present & (bit - 1)));
    return (word.present & bit) != 0 ? child : -1;
  }
};

// The link of one octant. It is the number of the child, and on the last level the voxel's row; -1
// = none. A node keeps all eight links and takes 32 bytes, as in O-CNN.
struct Link {
  static constexpr int kOctants = 1;
  static constexpr uint8_t kEmptyByte = 0xff;
  static constexpr bool kNumbersLeaves = false;

  int32_t child;

  static constexpr int32_t Follow(const Link* level, uint64_t octant) {
    return level[octant].child;
  }
};

// What a lookup needs. The pointers are to memory of an Octree.
template <typename Links>
struct OctreeView {
  OctreeCube cube;
  int64_t level_begin[kMaxOctreeDepth + 1];
  const Links* links;
  const int32_t* rows;

  // The row of the voxel at (batch, x, y, z), or -1. Any values are allowed. The descent starts at
  // the sample's root and ends at the first empty octant. O(depth).
  constexpr int32_t Find(const Coordinate& c) const {
    uint32_t cell[3] = {0, 0, 0};
    if (!cube.ToCell(c, cell)) return -1;
    const int depth = cube.depth();
    int32_t node = Links::Follow(links, static_cast<uint64_t>(c.b));
    for (int level = 1; level <= depth && node >= 0; ++level) {
      const int bit = depth - level;
      const uint32_t octant =
          (cell[0] >> bit & 1) << 2 | (cell[1] >> bit & 1) << 1 | (cell[2] >> bit & 1);
      node = Links::Follow(links + level_begin[level], 8 * static_cast<uint64_t>(node) + octant);
    }
    if constexpr (Links::kNumbersLeaves) return node < 0 ? -1 : rows[node];
    return node;
  }
};

// Sizes by depth.
struct OctreeLevels {
  std::array<int64_t, kMaxOctreeDepth + 1> nodes{};  // the last depth's are the voxels
  // Where each level of the links begins, in elements. The end of the last level follows.
  std::array<int64_t, kMaxOctreeDepth + 2> begin{};

  // Fills `begin` from `nodes`, for links of `octants_per_link`.
  void SetBegin(const OctreeCube& cube, int octants_per_link);
};

// `Links` is LinkWord or Link.
template <typename Links>
struct Octree {
  OctreeCube cube;
  OctreeLevels levels;
  Array<Links> links;
  Array<int32_t> rows;  // [voxels] in z-order; empty if the links lead to rows

  int64_t bytes() const { return links.bytes() + rows.bytes(); }
  OctreeView<Links> View() const {
    OctreeView<Links> view{cube, {}, links.data(), rows.data()};
    for (int level = 0; level <= cube.depth(); ++level)
      view.level_begin[level] = levels.begin[level];
    return view;
  }
};

// The least depth at which two voxels have different nodes. `highest_bit` is the highest bit in
// which their z-order keys differ.
constexpr int DepthOfParting(int highest_bit, int depth) {
  const int parting = depth - highest_bit / 3;
  return parting < 0 ? 0 : parting;
}

// The octant that leads to the node of depth `level` above a voxel, as an index into that level of
// the links. `parent` is the number of that node's parent. Level 0 ignores it.
constexpr uint64_t OctantOf(uint64_t key, int64_t parent, int level, int depth) {
  const uint64_t path = key >> 3 * (depth - level);
  return level == 0 ? path : 8 * static_cast<uint64_t>(parent) + (path & 7);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_OCTREE_H_
