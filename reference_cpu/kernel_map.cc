// SPDX-License-Identifier: Apache-2.0
#include "voxconv/reference_cpu/kernel_map.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "voxconv/reference_cpu/require.h"

namespace voxconv::reference {
namespace {

void CheckRowCount(const std::vector<Coord>& coords, const char* name) {
  Require(coords.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()), name, " has ",
          coords.size(), " rows; row numbers must fit 32 bits");
}

// Position p of the input that `output` meets under `offset`; kInverse excluded.
Vec3 PartnerOf(const Coord& output, const Vec3& offset, const Geometry& g) {
  Vec3 p = {output.x, output.y, output.z};
  const Vec3 t_out = OutputTensorStride(g);
  for (int a = 0; a < 3; ++a) {
    if (g.kind == Kind::kTransposed) {
      p[a] -= offset[a] * t_out[a];
    } else {
      p[a] += (offset[a] - g.padding[a]) * g.tensor_stride[a];
    }
  }
  return p;
}

KernelMap SwapInAndOut(const KernelMap& map) {
  KernelMap swapped;
  swapped.num_offsets = map.num_offsets;
  swapped.offset_ptr = map.offset_ptr;
  for (int k = 0; k < map.num_offsets; ++k) {
    std::vector<std::pair<int32_t, int32_t>> out_in;
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      out_in.emplace_back(map.in[i], map.out[i]);
    }
    std::sort(out_in.begin(), out_in.end());
    for (const auto& [out, in] : out_in) {
      swapped.out.push_back(out);
      swapped.in.push_back(in);
    }
  }
  return swapped;
}

}  // namespace

KernelMap BuildKernelMap(const std::vector<Coord>& inputs, const std::vector<Coord>& outputs,
                         const Geometry& g) {
  CheckGeometry(g);
  if (g.kind == Kind::kInverse) {
    Geometry strided = g;
    strided.kind = Kind::kStrided;
    return SwapInAndOut(BuildKernelMap(outputs, inputs, strided));
  }
  CheckRowCount(inputs, "inputs");
  CheckRowCount(outputs, "outputs");
  CheckCoords(inputs, InputTensorStride(g), "inputs");
  CheckCoords(outputs, OutputTensorStride(g), "outputs");

  if (g.kind == Kind::kSubmanifold) {
    Require(inputs == outputs, "outputs must equal inputs for kSubmanifold");
  }

  // Keyed by 64-bit positions: a partner may lie outside the 32-bit range.
  std::map<std::pair<int32_t, Vec3>, int32_t> row_of;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Coord& p = inputs[i];
    row_of[{p.b, Vec3{p.x, p.y, p.z}}] = static_cast<int32_t>(i);
  }

  const std::vector<Vec3> offsets = KernelOffsets(g);
  KernelMap map;
  map.num_offsets = static_cast<int>(offsets.size());
  map.offset_ptr.push_back(0);
  for (const Vec3& offset : offsets) {
    for (size_t o = 0; o < outputs.size(); ++o) {
      const auto found = row_of.find({outputs[o].b, PartnerOf(outputs[o], offset, g)});
      if (found == row_of.end()) continue;
      map.in.push_back(found->second);
      map.out.push_back(static_cast<int32_t>(o));
    }
    map.offset_ptr.push_back(static_cast<int64_t>(map.in.size()));
  }
  return map;
}

int64_t ReductionLength(const KernelMap& map, int64_t num_outputs, int64_t c_in) {
  std::vector<int64_t> pairs(static_cast<size_t>(num_outputs), 0);
  for (const int32_t out : map.out) {
    Require(out >= 0 && out < num_outputs, "out holds row ", out, "; it must be in [0, ",
            num_outputs, ")");
    ++pairs[out];
  }
  return pairs.empty() ? 0 : *std::max_element(pairs.begin(), pairs.end()) * c_in;
}

void CheckKernelMap(const KernelMap& map, int64_t num_inputs, int64_t num_outputs) {
  Require(map.num_offsets >= 0, "num_offsets is ", map.num_offsets, "; it must not be negative");
  Require(map.offset_ptr.size() == static_cast<size_t>(map.num_offsets) + 1,
          "offset_ptr must have num_offsets + 1 entries");
  Require(map.in.size() == map.out.size(), "in and out must have the same length");
  Require(map.offset_ptr.front() == 0 &&
              map.offset_ptr.back() == static_cast<int64_t>(map.in.size()) &&
              std::is_sorted(map.offset_ptr.begin(), map.offset_ptr.end()),
          "offset_ptr must ascend from 0 to the number of pairs");
  for (size_t i = 0; i < map.in.size(); ++i) {
    Require(map.in[i] >= 0 && map.in[i] < num_inputs, "in[", i, "] is ", map.in[i],
            "; it must be in [0, ", num_inputs, ")");
    Require(map.out[i] >= 0 && map.out[i] < num_outputs, "out[", i, "] is ", map.out[i],
            "; it must be in [0, ", num_outputs, ")");
  }
}

}  // namespace voxconv::reference
