// An octree over the voxels of a batch, in the memory of either backend, and looking one up in it:
// what H-CNN (Abstract, Section 1) compares its perfect hashing with.
//
// Depth 0 has a root for each sample with voxels, depth d + 1 the children of depth d's nodes that
// have voxels, the last depth the voxels themselves; all in z-order, sample by sample. Nodes are
// numbered within their depth and are nothing but their links: level d of the links leads to the
// nodes of depth d, from the samples (d = 0) or from the eight octants of every node above.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "core/buffer.h"
#include "core/coordinate_key.h"
#include "core/coordinate_set.h"

namespace voxconv {

inline constexpr int kMaxOctreeDepth = kKeyAxisBits;

// The cube that the tree divides: the lattice points of the voxels' tensor stride from the lower
// corner of their bounds on, 2^depth along every axis, no more than the bounds' longest edge needs.
// Trivially copyable: kernels take it by value.
class OctreeCube {
 public:
  OctreeCube() = default;
  explicit OctreeCube(const CoordinateSet& voxels);

  // constexpr for device code, where a call of a plain function is left out without a word.
  constexpr int depth() const { return depth_; }
  constexpr int32_t num_samples() const { return num_samples_; }
  // Bits of the largest z-order key.
  int key_bits() const;

  // The cell of any position in units of the lattice; false, and nothing of use in `cell`, outside
  // the voxels' bounds, between lattice points and for samples that are not there.
  constexpr bool ToCell(const Coordinate& c, uint32_t cell[3]) const {
    const int32_t position[3] = {c.x, c.y, c.z};
    // What is below a bound is far above it, unsigned.
    bool inside = static_cast<uint32_t>(c.b) < static_cast<uint32_t>(num_samples_);
    for (int axis = 0; axis < 3; ++axis) {
      const Axis& a = axes_[axis];
      const uint32_t distance = static_cast<uint32_t>(position[axis]) - static_cast<uint32_t>(a.lo);
      // Strides are mostly powers of two, and divisions slow.
      cell[axis] = a.stride_bits >= 0 ? distance >> a.stride_bits : distance / a.stride;
      inside = inside && distance <= a.span && cell[axis] * a.stride == distance;
    }
    return inside;
  }

  // The sample above 3 bits a depth, the root's octant first.
  constexpr uint64_t ZOrderKey(int32_t sample, const uint32_t cell[3]) const {
    return static_cast<uint64_t>(sample) << 3 * depth_ | Spread(cell[0]) << 2 |
           Spread(cell[1]) << 1 | Spread(cell[2]);
  }
  // Of a voxel of the set.
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

  // Bit i goes to bit 3 i; below 2^kMaxOctreeDepth.
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

// Set bits of v. Without the instruction, which the least of x86-64 processors lacks, std::popcount
// is a call that looks every byte up.
constexpr uint32_t CountBits(uint32_t v) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(static_cast<int>(v)));
#else
  v -= v >> 1 & 0x55555555;
  v = (v & 0x33333333) + (v >> 2 & 0x33333333);
  return ((v + (v >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
#endif
}

// The links of 32 octants, four nodes' (or samples): which have a child, and the number of the
// first one's, whom the others follow. 8 bytes: two a node, with the children's mask and all that
// it takes to find them.
struct alignas(8) LinkWord {
  static constexpr int kOctants = 32;
  static constexpr int kNodes = kOctants / 8;
  static constexpr uint8_t kEmptyByte = 0;
  // Numbers of the last depth are positions in Octree::rows.
  static constexpr bool kNumbersLeaves = true;

  uint32_t present, first;

  static constexpr int32_t Follow(const LinkWord* level, uint64_t octant) {
    const LinkWord word = level[octant / kOctants];
    const uint32_t bit = 1u << octant % kOctants;
    const auto child = static_cast<int32_t>(word.first + CountBits(word.present & (bit - 1)));
    return (word.present & bit) != 0 ? child : -1;
  }
};

// One octant's: the number of its child, on the last level the voxel's row; -1: none. 32 bytes a
// node, which keeps all eight, as O-CNN subdivides.
struct Link {
  static constexpr int kOctants = 1;
  static constexpr uint8_t kEmptyByte = 0xff;
  static constexpr bool kNumbersLeaves = false;

  int32_t child;

  static constexpr int32_t Follow(const Link* level, uint64_t octant) {
    return level[octant].child;
  }
};

// What looking up takes; not owned, but for the sizes.
template <typename Links>
struct OctreeView {
  OctreeCube cube;
  int64_t level_begin[kMaxOctreeDepth + 1];
  const Links* links;
  const int32_t* rows;

  // Row of the voxel at any (batch, x, y, z), -1 if there is none: a descent from the sample's
  // root, that ends at the first empty octant.
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
  // Of the links, in elements; the end of the last level behind it.
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
  Array<int32_t> rows;  // [voxels] in z-order; empty where links lead to rows

  int64_t bytes() const { return links.bytes() + rows.bytes(); }
  OctreeView<Links> View() const {
    OctreeView<Links> view{cube, {}, links.data(), rows.data()};
    for (int level = 0; level <= cube.depth(); ++level)
      view.level_begin[level] = levels.begin[level];
    return view;
  }
};

// The least depth at which two voxels have different nodes, by the highest bit in which their
// z-order keys differ.
constexpr int DepthOfParting(int highest_bit, int depth) {
  const int parting = depth - highest_bit / 3;
  return parting < 0 ? 0 : parting;
}

// The octant that leads to the node of depth `level` above a voxel: an index into that level.
// `parent`: the number of the node above that one (of no account on level 0).
constexpr uint64_t OctantOf(uint64_t key, int64_t parent, int level, int depth) {
  const uint64_t path = key >> 3 * (depth - level);
  return level == 0 ? path : 8 * static_cast<uint64_t>(parent) + (path & 7);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_OCTREE_H_
