// SPDX-License-Identifier: Apache-2.0
#include "voxconv/reference_cpu/geometry.h"

#include <limits>
#include <ostream>
#include <set>
#include <stdexcept>

#include "voxconv/reference_cpu/require.h"

namespace voxconv::reference {
namespace {

constexpr const char* kAxisNames[3] = {"x", "y", "z"};

// With every field below this, no product of a kernel offset, a stride and a
// tensor stride leaves 64 bits.
constexpr int64_t kLimit = int64_t{1} << 19;

void RequireInRange(const Vec3& value, int64_t lo, const char* name) {
  for (int a = 0; a < 3; ++a) {
    Require(value[a] >= lo && value[a] <= kLimit, name, "[", kAxisNames[a], "] is ", value[a],
            "; it must be in [", lo, ", ", kLimit, "]");
  }
}

Vec3 Position(const Coord& c) { return {c.x, c.y, c.z}; }

int32_t Narrow(int64_t value) {
  Require(
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(),
      "an output coordinate is ", value, "; it must fit 32 bits");
  return static_cast<int32_t>(value);
}

Coord MakeCoord(int32_t batch, const Vec3& position) {
  return {batch, Narrow(position[0]), Narrow(position[1]), Narrow(position[2])};
}

int64_t FloorToMultiple(int64_t value, int64_t step) {
  int64_t remainder = value % step;
  if (remainder < 0) remainder += step;
  return value - remainder;
}

std::set<Coord> QuantizedOutputs(const std::vector<Coord>& inputs, const Geometry& g) {
  std::set<Coord> outputs;
  for (const Coord& p : inputs) {
    Vec3 q = Position(p);
    for (int a = 0; a < 3; ++a) q[a] = FloorToMultiple(q[a], g.stride[a] * g.tensor_stride[a]);
    outputs.insert(MakeCoord(p.b, q));
  }
  return outputs;
}

std::set<Coord> DilatedOutputs(const std::vector<Coord>& inputs, const Geometry& g) {
  const std::vector<Vec3> offsets = KernelOffsets(g);
  std::set<Coord> outputs;
  for (const Coord& p : inputs) {
    for (const Vec3& offset : offsets) {
      Vec3 q = Position(p);
      bool is_output = true;
      for (int a = 0; a < 3; ++a) {
        const int64_t us = q[a] / g.tensor_stride[a] + g.padding[a] - offset[a];
        const int64_t u = us / g.stride[a];
        if (u * g.stride[a] != us) is_output = false;
        if (g.bounds && (u < g.bounds->lo[a] || u > g.bounds->hi[a])) is_output = false;
        q[a] = us * g.tensor_stride[a];
      }
      if (is_output) outputs.insert(MakeCoord(p.b, q));
    }
  }
  return outputs;
}

std::set<Coord> GeneratedOutputs(const std::vector<Coord>& inputs, const Geometry& g) {
  const std::vector<Vec3> offsets = KernelOffsets(g);
  const Vec3 step = OutputTensorStride(g);
  std::set<Coord> outputs;
  for (const Coord& p : inputs) {
    for (const Vec3& offset : offsets) {
      Vec3 q = Position(p);
      for (int a = 0; a < 3; ++a) q[a] += offset[a] * step[a];
      outputs.insert(MakeCoord(p.b, q));
    }
  }
  return outputs;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Coord& c) {
  return out << "(" << c.b << ", " << c.x << ", " << c.y << ", " << c.z << ")";
}

void CheckGeometry(const Geometry& g) {
  RequireInRange(g.kernel, 1, "kernel");
  RequireInRange(g.stride, 1, "stride");
  RequireInRange(g.dilation, 1, "dilation");
  RequireInRange(g.tensor_stride, 1, "tensor_stride");
  RequireInRange(g.padding, -kLimit, "padding");
  const int64_t volume = g.kernel[0] * g.kernel[1] * g.kernel[2];
  Require(volume <= kLimit, "the kernel has ", volume, " offsets; at most ", kLimit,
          " are allowed");
  const bool strided = g.kind == Kind::kStrided || g.kind == Kind::kInverse;
  if (!(strided && g.rule == Rule::kDilate)) {
    Require(g.padding == Vec3{0, 0, 0}, "padding must be 0 except for rule kDilate");
    Require(!g.bounds, "bounds must be absent except for rule kDilate");
  }
  if (g.kind == Kind::kSubmanifold) {
    Require(g.stride == Vec3{1, 1, 1}, "stride must be 1 for kSubmanifold");
  }
  if (g.kind == Kind::kTransposed) {
    for (int a = 0; a < 3; ++a) {
      Require(g.tensor_stride[a] % g.stride[a] == 0, "tensor_stride[", kAxisNames[a], "] is ",
              g.tensor_stride[a], "; it must be divisible by the stride ", g.stride[a]);
    }
  }
}

std::vector<Vec3> KernelOffsets(const Geometry& g) {
  const auto offset = [&g](int axis, int64_t i) {
    const int64_t size = g.kernel[axis];
    const int64_t first = size % 2 == 1 ? -(size - 1) / 2 : 0;
    return (first + i) * g.dilation[axis];
  };
  std::vector<Vec3> offsets;
  for (int64_t x = 0; x < g.kernel[0]; ++x) {
    for (int64_t y = 0; y < g.kernel[1]; ++y) {
      for (int64_t z = 0; z < g.kernel[2]; ++z) {
        offsets.push_back({offset(0, x), offset(1, y), offset(2, z)});
      }
    }
  }
  return offsets;
}

Vec3 InputTensorStride(const Geometry& g) {
  Vec3 t = g.tensor_stride;
  if (g.kind == Kind::kInverse) {
    for (int a = 0; a < 3; ++a) t[a] *= g.stride[a];
  }
  return t;
}

Vec3 OutputTensorStride(const Geometry& g) {
  Vec3 t = g.tensor_stride;
  for (int a = 0; a < 3; ++a) {
    if (g.kind == Kind::kStrided) t[a] *= g.stride[a];
    if (g.kind == Kind::kTransposed) t[a] /= g.stride[a];
  }
  return t;
}

void CheckCoords(const std::vector<Coord>& coords, const Vec3& tensor_stride, const char* name) {
  std::set<Coord> seen;
  for (const Coord& c : coords) {
    Require(seen.insert(c).second, name, " holds ", c, " twice");
    const Vec3 position = Position(c);
    for (int a = 0; a < 3; ++a) {
      Require(position[a] % tensor_stride[a] == 0, name, " holds ", c, "; along ", kAxisNames[a],
              " it must be a multiple of the tensor stride ", tensor_stride[a]);
    }
  }
}

std::vector<Coord> OutputCoordinates(const std::vector<Coord>& inputs, const Geometry& g) {
  CheckGeometry(g);
  CheckCoords(inputs, InputTensorStride(g), "inputs");
  std::set<Coord> outputs;
  switch (g.kind) {
    case Kind::kSubmanifold:
      return inputs;
    case Kind::kInverse:
      throw std::invalid_argument("kInverse has no output rule: its outputs are given");
    case Kind::kStrided:
      outputs = g.rule == Rule::kQuantize ? QuantizedOutputs(inputs, g) : DilatedOutputs(inputs, g);
      break;
    case Kind::kTransposed:
      outputs = GeneratedOutputs(inputs, g);
      break;
  }
  return {outputs.begin(), outputs.end()};
}

}  // namespace voxconv::reference
