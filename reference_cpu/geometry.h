// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_GEOMETRY_H_
#define VOXCONV_REFERENCE_CPU_GEOMETRY_H_

#include <array>
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

namespace voxconv::reference {

// One value an axis, in the order x, y, z.
using Vec3 = std::array<int64_t, 3>;

// A voxel: batch sample and position in units of the finest voxel. Ordered
// lexicographically by (b, x, y, z), as signed integers.
struct Coord {
  int32_t b = 0;
  int32_t x = 0;
  int32_t y = 0;
  int32_t z = 0;

  friend auto operator<=>(const Coord&, const Coord&) = default;
};

// Writes (b, x, y, z).
std::ostream& operator<<(std::ostream& out, const Coord& c);

enum class Kind { kSubmanifold, kStrided, kInverse, kTransposed };

// How a strided layer finds its outputs. `kQuantize` rounds the inputs down to
// the coarser lattice (Minkowski, PCEngine, Minuet). `kDilate` takes every
// lattice point whose window has an input (SpConv, TorchSparse Algorithm 3,
// H-CNN with padding).
enum class Rule { kQuantize, kDilate };

// Inclusive range of the output index u = q / (s·t) along each axis.
struct Bounds {
  Vec3 lo;
  Vec3 hi;
};

struct Geometry {
  Kind kind = Kind::kSubmanifold;
  Rule rule = Rule::kQuantize;  // read by kStrided and kInverse only
  Vec3 kernel = {3, 3, 3};
  Vec3 stride = {1, 1, 1};
  Vec3 dilation = {1, 1, 1};
  Vec3 padding = {0, 0, 0};        // in input tensor strides, may be negative; kDilate only
  std::optional<Bounds> bounds;    // kDilate only; absent means unbounded
  Vec3 tensor_stride = {1, 1, 1};  // the input's; for kInverse that of the fine side
};

// Throws std::invalid_argument for a geometry that is not allowed. The message
// gives the field, its value and what is allowed.
void CheckGeometry(const Geometry& geometry);

// Kernel offsets in the order of their index: x changes slowest, z fastest. They
// are centred for an odd kernel and 0..K-1 for an even one, times the dilation.
// They are not multiplied by a tensor stride.
std::vector<Vec3> KernelOffsets(const Geometry& geometry);

// Tensor strides of what goes into and comes out of the layer.
Vec3 InputTensorStride(const Geometry& geometry);
Vec3 OutputTensorStride(const Geometry& geometry);

// Throws std::invalid_argument if `coords` holds a duplicate, or a coordinate
// that is not a multiple of `tensor_stride`. `name` is used in the message.
void CheckCoords(const std::vector<Coord>& coords, const Vec3& tensor_stride, const char* name);

// The output voxels of a layer. For kSubmanifold they are the inputs in their
// order. For kStrided and kTransposed they are unique and sorted. For kInverse
// they are given, so this function throws std::invalid_argument.
// Takes O(N·K·log(N·K)) time.
std::vector<Coord> OutputCoordinates(const std::vector<Coord>& inputs, const Geometry& geometry);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_GEOMETRY_H_
