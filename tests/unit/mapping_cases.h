// SPDX-License-Identifier: Apache-2.0
// Small problems for the unit tests of mappings and output coordinates, with their answers by brute
// force.
#ifndef VOXCONV_TESTS_UNIT_MAPPING_CASES_H_
#define VOXCONV_TESTS_UNIT_MAPPING_CASES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/registry.h"

namespace voxconv {

struct MapCase {
  std::string name;
  GeometryParams params;
  std::vector<Coordinate> inputs, outputs;
  // No array can hold all cells of these bounds. An index may fail for lack of memory.
  bool huge_bounds = false;

  friend void PrintTo(const MapCase& c, std::ostream* os) { *os << c.name; }
};

// `count` draws in [lo, hi]^3 for every batch, multiples of `stride`, once each, in random order.
inline std::vector<Coordinate> RandomVoxels(int count, const std::vector<int>& batches, int lo,
                                            int hi, const Int3& stride, uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int axis) {
    const int first = (lo + stride[axis] - 1) / stride[axis], last = hi / stride[axis];
    return (first + static_cast<int>(random() % (last - first + 1))) * stride[axis];
  };
  std::set<Coordinate> voxels;
  for (int b : batches) {
    for (int i = 0; i < count; ++i) voxels.insert({b, draw(0), draw(1), draw(2)});
  }
  std::vector<Coordinate> rows(voxels.begin(), voxels.end());
  std::shuffle(rows.begin(), rows.end(), random);
  return rows;
}

inline std::vector<Coordinate> Sorted(std::vector<Coordinate> voxels) {
  std::sort(voxels.begin(), voxels.end());
  return voxels;
}

// The output coordinates of a strided or transposed geometry, sorted.
inline std::vector<Coordinate> BruteForceOutputs(const std::vector<Coordinate>& inputs,
                                                 const ConvGeometry& geometry) {
  const GeometryParams& params = geometry.params();
  const Int3 step = geometry.output_tensor_stride();
  std::set<Coordinate> outputs;
  const auto floor_to = [](int64_t value, int64_t unit) {
    return static_cast<int32_t>(value - ((value % unit) + unit) % unit);
  };
  for (const Coordinate& p : inputs) {
    if (geometry.kind() == ConvKind::kStrided && params.rule == OutputRule::kQuantize) {
      outputs.insert({p.b, floor_to(p.x, step.x), floor_to(p.y, step.y), floor_to(p.z, step.z)});
      continue;
    }
    for (const Int3& d : geometry.input_offsets()) {
      const Int3 q{p.x - d.x, p.y - d.y, p.z - d.z};
      bool keep = true;
      for (int axis = 0; axis < 3; ++axis) {
        keep = keep && q[axis] % step[axis] == 0;
        if (!params.output_bounds.has_value()) continue;
        keep = keep && q[axis] / step[axis] >= params.output_bounds->lo[axis] &&
               q[axis] / step[axis] <= params.output_bounds->hi[axis];
      }
      if (keep) outputs.insert({p.b, q.x, q.y, q.z});
    }
  }
  return {outputs.begin(), outputs.end()};
}

// The layer `params` on `inputs`. It must not be inverse; Inverse makes such a case.
inline MapCase Layer(std::string name, std::vector<Coordinate> inputs,
                     const GeometryParams& params) {
  const ConvGeometry geometry = *ConvGeometry::Create(params);
  std::vector<Coordinate> outputs =
      geometry.keeps_coordinates() ? inputs : BruteForceOutputs(inputs, geometry);
  return {std::move(name), params, std::move(inputs), std::move(outputs)};
}

inline MapCase Submanifold(std::string name, std::vector<Coordinate> voxels, Int3 kernel,
                           Int3 dilation = {1, 1, 1}, Int3 tensor_stride = {1, 1, 1}) {
  return Layer(std::move(name), std::move(voxels),
               {.kernel = kernel, .dilation = dilation, .input_tensor_stride = tensor_stride});
}

inline GeometryParams Quantize(Int3 kernel, Int3 stride, Int3 dilation = {1, 1, 1},
                               Int3 tensor_stride = {1, 1, 1}) {
  return {.kind = ConvKind::kStrided,
          .rule = OutputRule::kQuantize,
          .kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .input_tensor_stride = tensor_stride};
}

inline GeometryParams Dilate(Int3 kernel, Int3 stride, Int3 padding = {0, 0, 0},
                             Int3 dilation = {1, 1, 1}) {
  return {.kind = ConvKind::kStrided,
          .rule = OutputRule::kDilate,
          .kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .padding = padding};
}

inline GeometryParams Transposed(Int3 kernel, Int3 stride, Int3 dilation = {1, 1, 1},
                                 Int3 tensor_stride = {1, 1, 1}) {
  return {.kind = ConvKind::kTransposed,
          .kernel = kernel,
          .stride = stride,
          .dilation = dilation,
          .input_tensor_stride = tensor_stride};
}

// The strided case with inputs and outputs exchanged.
inline MapCase Inverse(std::string name, MapCase c) {
  c.name = std::move(name);
  c.params = ConvGeometry::InverseOf(*ConvGeometry::Create(c.params))->params();
  std::swap(c.inputs, c.outputs);
  return c;
}

// Both ends of the range on every axis. Whatever adds keys without a check finds a voxel of the
// other end, or of another sample.
inline std::vector<Coordinate> RangeEnds() {
  std::vector<Coordinate> rows;
  for (int32_t x : {kMinCoordinate, kMaxCoordinate}) {
    for (int32_t y : {kMinCoordinate, 0, kMaxCoordinate}) {
      for (int32_t z : {kMinCoordinate, kMinCoordinate + 1, kMaxCoordinate}) {
        for (int32_t b : {0, 1, kMaxBatch}) rows.push_back({b, x, y, z});
      }
    }
  }
  for (const Coordinate& c :
       RandomVoxels(40, {0, kMaxBatch}, kMinCoordinate, kMinCoordinate + 3, {1, 1, 1}, 4)) {
    rows.push_back(c);
    rows.push_back({c.b, -1 - c.x, c.y, -1 - c.z});
  }
  rows = Sorted(std::move(rows));
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::shuffle(rows.begin(), rows.end(), std::mt19937(5));
  return rows;
}

// One corner of the range, of an extent that a grid can hold.
inline std::vector<Coordinate> RangeCorner() {
  std::vector<Coordinate> rows;
  rows.reserve(30);
  for (int32_t i = 0; i < 30; ++i) {
    rows.push_back(
        {i % 2, kMaxCoordinate - i % 3, kMinCoordinate + i / 3 % 3, kMaxCoordinate - i / 9});
  }
  return rows;
}

inline std::vector<MapCase> SubmanifoldCases() {
  const Int3 one{1, 1, 1}, three{3, 3, 3};
  // Batch sample 1 stays empty.
  const std::vector<Coordinate> cloud = RandomVoxels(150, {0, 2}, -6, 6, one, 1);
  std::vector<Coordinate> block;
  block.reserve(216);
  for (int i = 0; i < 216; ++i) block.push_back({0, i / 36 - 3, i / 6 % 6, i % 6});
  return {
      Submanifold("K3", Sorted(cloud), three),
      Submanifold("K3Unsorted", cloud, three),
      Submanifold("K5x1x3", cloud, {5, 1, 3}),
      Submanifold("K1x1x11", Sorted(cloud), {1, 1, 11}),
      Submanifold("K1", cloud, one),
      Submanifold("K2", Sorted(cloud), {2, 2, 2}),
      Submanifold("K4x3x2", cloud, {4, 3, 2}),
      Submanifold("K3D2", Sorted(cloud), three, {2, 2, 2}),
      Submanifold("K3D1x2x3Unsorted", cloud, three, {1, 2, 3}),
      Submanifold("K5x1x2D2x1x3", cloud, {5, 1, 2}, {2, 1, 3}),
      Submanifold("K3T2", RandomVoxels(120, {0, 1}, -14, 14, {2, 2, 2}, 2), three, one, {2, 2, 2}),
      Submanifold("BlockK3", block, three),
      Submanifold("Empty", {}, three),
      Submanifold("OneVoxel", {{kMaxBatch, -7, 0, 9}}, three),
      Submanifold("CornerK3", RangeCorner(), three),
      Submanifold("EndsK3", Sorted(RangeEnds()), three),
      Submanifold("EndsK5Unsorted", RangeEnds(), {5, 5, 5}),
      Submanifold("EndsK2", RangeEnds(), {2, 2, 2}),
  };
}

inline std::vector<MapCase> StridedCases() {
  const Int3 one{1, 1, 1}, two{2, 2, 2}, three{3, 3, 3}, coarse{2, 3, 4};
  const std::vector<Coordinate> cloud = RandomVoxels(150, {0, 2}, -6, 6, one, 1);
  const std::vector<Coordinate> axes = RandomVoxels(150, {0, 2}, -12, 12, coarse, 2);
  std::vector<Coordinate> block;
  block.reserve(216);
  for (int i = 0; i < 216; ++i) block.push_back({0, i / 36 - 3, i / 6 % 6, i % 6});
  const MapCase quantize = Layer("QuantizeK3S2", cloud, Quantize(three, two));
  const MapCase dilate = Layer("DilateK3S2P1", cloud, Dilate(three, two, one));
  const MapCase uneven = Layer("QuantizeAxes", cloud, Quantize({3, 2, 1}, {2, 3, 1}, {1, 2, 1}));
  MapCase unsorted = quantize;
  unsorted.name = "QuantizeUnsortedOutputs";
  std::reverse(unsorted.outputs.begin(), unsorted.outputs.end());
  GeometryParams bounded = dilate.params;
  bounded.output_bounds = Box{{-2, -1, 0}, {1, 2, 1}};
  GeometryParams within_range = Dilate(three, two);
  within_range.output_bounds = Box{{kMinCoordinate / 2, kMinCoordinate / 2, kMinCoordinate / 2},
                                   {kMaxCoordinate / 2, kMaxCoordinate / 2, kMaxCoordinate / 2}};
  return {
      quantize,
      unsorted,
      uneven,
      dilate,
      Layer("QuantizeK2S2", Sorted(cloud), Quantize(two, two)),
      Layer("QuantizeCoarse", axes, Quantize(three, two, one, coarse)),
      Layer("QuantizeCoarseAxes", axes, Quantize({2, 3, 4}, {1, 2, 3}, one, coarse)),
      Layer("QuantizeBlockS8", block, Quantize(three, {8, 8, 8})),
      Layer("QuantizeEmpty", {}, Quantize(three, two)),
      Layer("QuantizeEnds", RangeEnds(), Quantize(three, two)),
      Layer("DilateS3", cloud, Dilate(three, three, {1, 0, -1})),
      Layer("DilateAxes", cloud, Dilate({2, 3, 1}, {1, 2, 3}, {0, -1, 2}, {1, 2, 1})),
      Layer("DilateBounds", cloud, bounded),
      Layer("DilateEmpty", {}, Dilate(three, two)),
      Layer("DilateOneVoxel", {{0, -7, 0, 9}}, Dilate(three, two)),
      Layer("DilateEnds", RangeEnds(), within_range),
      Inverse("InverseQuantize", quantize),
      Inverse("InverseAxes", uneven),
      Inverse("InverseDilate", dilate),
      Layer("TransposedK3", cloud, Transposed(three, one)),
      Layer("TransposedAxes", axes, Transposed({2, 3, 4}, {2, 3, 2}, {1, 2, 1}, coarse)),
  };
}

inline std::vector<MapCase> MapCases() {
  std::vector<MapCase> cases = SubmanifoldCases();
  for (MapCase& c : StridedCases()) cases.push_back(std::move(c));
  for (MapCase& c : cases) c.huge_bounds = c.name.find("Ends") != std::string::npos;
  return cases;
}

// A kernel map on the host, in canonical order.
struct Pairs {
  std::vector<int64_t> offset_ptr{0};
  std::vector<int32_t> in, out;
  friend bool operator==(const Pairs&, const Pairs&) = default;
};

inline Pairs BruteForcePairs(const MapCase& c, const ConvGeometry& geometry) {
  std::map<Coordinate, int32_t> row_of;
  for (size_t p = 0; p < c.inputs.size(); ++p) row_of[c.inputs[p]] = static_cast<int32_t>(p);
  Pairs pairs;
  for (const Int3& d : geometry.input_offsets()) {
    for (size_t q = 0; q < c.outputs.size(); ++q) {
      const Coordinate& o = c.outputs[q];
      const auto p = row_of.find({o.b, o.x + d.x, o.y + d.y, o.z + d.z});
      if (p == row_of.end()) continue;
      pairs.in.push_back(p->second);
      pairs.out.push_back(static_cast<int32_t>(q));
    }
    pairs.offset_ptr.push_back(static_cast<int64_t>(pairs.in.size()));
  }
  return pairs;
}

inline Pairs PairsOf(const KernelMap& map) {
  const auto in = map.pairs().in.array().host(), out = map.pairs().out.array().host();
  return {map.offset_ptr(), {in.begin(), in.end()}, {out.begin(), out.end()}};
}

// The map by `mapping`; outputs are the input set itself where the geometry keeps coordinates.
inline absl::StatusOr<KernelMap> RunMapping(const Mapping& mapping, const MapCase& c,
                                            UnitCpu& cpu) {
  const ConvGeometry geometry = *ConvGeometry::Create(c.params);
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr inputs,
      CoordinateSet::Create(c.inputs, geometry.input_tensor_stride(), cpu.context));
  CoordinateSetPtr outputs = inputs;
  if (!geometry.keeps_coordinates()) {
    VOXCONV_ASSIGN_OR_RETURN(
        outputs, CoordinateSet::Create(c.outputs, geometry.output_tensor_stride(), cpu.context));
  }
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           mapping.BuildIndex(*inputs, cpu.context));
  EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kIndexBuild)], 1);
  EXPECT_EQ(cpu.profile.counters.index_bytes, index->bytes());
  return mapping.Query(*index, {*inputs, *outputs, geometry}, cpu.context);
}

// Runs every variant in `registry` that the CPU has on `c` with 1 and 2 threads and compares with
// brute force.
inline void ExpectExactMaps(const Registry& registry, const MapCase& c) {
  const ConvGeometry geometry = *ConvGeometry::Create(c.params);
  const Pairs expected = BruteForcePairs(c, geometry);
  int supported = 0;
  for (const std::string& spec : registry.mappings().Variants(BackendKind::kCpu)) {
    SCOPED_TRACE(spec);
    const auto mapping = registry.mappings().Create(spec, BackendKind::kCpu);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    if (!(*mapping)->Supports(geometry).ok) continue;
    ++supported;
    for (int threads : {1, 2}) {
      UnitCpu cpu(threads);
      const auto map = RunMapping(**mapping, c, cpu);
      if (c.huge_bounds && absl::IsResourceExhausted(map.status())) continue;
      ASSERT_TRUE(map.ok()) << map.status();
      EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);
      // The index and the coordinates are gone. A lookup finds its neighbours now.
      ASSERT_TRUE(map->Validate(cpu.context).ok()) << map->Validate(cpu.context);
      const auto pairs = cpu.backend->map_ops().To(MapForm::kPairs, *map, cpu.context);
      ASSERT_TRUE(pairs.ok()) << pairs.status();
      const Pairs found = PairsOf(*pairs);
      EXPECT_EQ(found.offset_ptr, expected.offset_ptr);
      EXPECT_TRUE(found == expected) << threads << " threads";
      EXPECT_EQ(map->identity_offset(), geometry.center());
      EXPECT_EQ(map->symmetric(), geometry.symmetric());
    }
  }
  EXPECT_GT(supported, 0);
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_MAPPING_CASES_H_
