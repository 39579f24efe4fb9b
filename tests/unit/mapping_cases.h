// Small problems for tests of mappings and output coordinates, with their answers by brute force.
#ifndef VOXCONV_TESTS_UNIT_MAPPING_CASES_H_
#define VOXCONV_TESTS_UNIT_MAPPING_CASES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/convolution.h"
#include "core/coordinate_key.h"
#include "core/mapping.h"
#include "core/registry.h"
#include "gtest/gtest.h"

namespace voxconv {

struct Cpu {
  explicit Cpu(int threads)
      : backend(*CpuBackend::Create({.threads = threads})),
        context{backend.get(), &backend->main_stream(), &profile} {}
  std::unique_ptr<CpuBackend> backend;
  Profile profile;
  ExecutionContext context;
};

// `inputs` are those of the geometry's own input side.
struct MapCase {
  std::string name;
  GeometryParams params;  // kInverse: of the strided layer, whose map is then swapped
  std::vector<Coordinate> inputs;
  bool inverse = false;
};

inline std::vector<Coordinate> RandomRows(int count, int32_t extent, const Int3& tensor_stride,
                                          const Int3& origin, int seed) {
  std::mt19937 random(seed);
  std::set<Coordinate> rows;
  const auto axis = [&](int a) {
    const int32_t first = origin[a] / tensor_stride[a];
    return (first + static_cast<int32_t>(random() % extent)) * tensor_stride[a];
  };
  for (int i = 0; i < count; ++i) {
    // Batch sample 1 stays empty.
    rows.insert({random() % 2 == 0 ? 0 : 2, axis(0), axis(1), axis(2)});
  }
  std::vector<Coordinate> shuffled(rows.begin(), rows.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  return shuffled;
}

inline GeometryParams Params(ConvKind kind, OutputRule rule, const Int3& kernel, const Int3& stride,
                             const Int3& dilation = {1, 1, 1}, const Int3& padding = {0, 0, 0}) {
  GeometryParams params;
  params.kind = kind;
  params.rule = rule;
  params.kernel = kernel;
  params.stride = stride;
  params.dilation = dilation;
  params.padding = padding;
  return params;
}

inline std::vector<MapCase> MapCases() {
  using enum ConvKind;
  using enum OutputRule;
  const std::vector<Coordinate> rows = RandomRows(300, 9, {1, 1, 1}, {-5, -4, -3}, 1);
  std::vector<Coordinate> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  std::vector<MapCase> cases = {
      {"submanifold", Params(kSubmanifold, kQuantize, {3, 3, 3}, {1, 1, 1}), rows},
      {"submanifold_sorted", Params(kSubmanifold, kQuantize, {3, 3, 3}, {1, 1, 1}), sorted},
      {"submanifold_even", Params(kSubmanifold, kQuantize, {2, 2, 2}, {1, 1, 1}), rows},
      {"submanifold_mixed", Params(kSubmanifold, kQuantize, {5, 1, 2}, {1, 1, 1}, {2, 1, 3}), rows},
      {"submanifold_odd", Params(kSubmanifold, kQuantize, {1, 3, 5}, {1, 1, 1}, {1, 2, 1}), rows},
      {"pointwise", Params(kSubmanifold, kQuantize, {1, 1, 1}, {1, 1, 1}), rows},
      {"quantize", Params(kStrided, kQuantize, {2, 2, 2}, {2, 2, 2}), rows},
      {"quantize_axes", Params(kStrided, kQuantize, {3, 2, 1}, {2, 3, 1}, {1, 2, 1}), rows},
      {"dilate", Params(kStrided, kDilate, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}), rows},
      {"dilate_axes", Params(kStrided, kDilate, {2, 3, 1}, {1, 2, 3}, {1, 2, 1}, {0, -1, 2}), rows},
      {"transposed", Params(kTransposed, kQuantize, {3, 3, 3}, {1, 1, 1}), rows},
      {"empty", Params(kSubmanifold, kQuantize, {3, 3, 3}, {1, 1, 1}), {}},
      {"empty_quantize", Params(kStrided, kQuantize, {3, 3, 3}, {2, 2, 2}), {}},
      {"empty_dilate", Params(kStrided, kDilate, {3, 3, 3}, {2, 2, 2}), {}},
      {"one", Params(kSubmanifold, kQuantize, {3, 3, 3}, {1, 1, 1}), {{511, -7, 0, 9}}},
      {"one_dilate", Params(kStrided, kDilate, {3, 3, 3}, {2, 2, 2}), {{0, -7, 0, 9}}},
  };
  cases.push_back({"inverse_quantize", cases[6].params, rows, true});
  cases.push_back({"inverse_axes", cases[7].params, rows, true});
  cases.push_back({"inverse_dilate", cases[8].params, rows, true});

  MapCase coarse{"quantize_coarse", Params(kStrided, kQuantize, {3, 3, 3}, {2, 2, 2}),
                 RandomRows(300, 9, {2, 3, 4}, {-6, -9, -12}, 2)};
  coarse.params.input_tensor_stride = {2, 3, 4};
  cases.push_back(coarse);
  coarse.name = "transposed_axes";
  coarse.params = Params(kTransposed, kQuantize, {2, 3, 4}, {2, 3, 2}, {1, 2, 1});
  coarse.params.input_tensor_stride = {2, 3, 4};
  cases.push_back(coarse);
  MapCase bounded = cases[8];
  bounded.name = "dilate_bounds";
  bounded.params.output_bounds = Box{{-2, -1, 0}, {1, 2, 1}};
  cases.push_back(bounded);

  // Whatever adds keys without a check finds a voxel of the other edge, or of another sample.
  MapCase edges{"edges", Params(kSubmanifold, kQuantize, {3, 3, 3}, {1, 1, 1}), {}};
  for (int32_t x : {kMinCoordinate, kMaxCoordinate}) {
    for (int32_t y : {kMinCoordinate, 0, kMaxCoordinate}) {
      for (int32_t z : {kMinCoordinate, kMinCoordinate + 1, kMaxCoordinate}) {
        for (int32_t b : {0, 1, 511}) edges.inputs.push_back({b, x, y, z});
      }
    }
  }
  std::shuffle(edges.inputs.begin(), edges.inputs.end(), std::mt19937(5));
  cases.push_back(edges);
  MapCase corner = edges;  // of an extent that a grid can hold
  corner.name = "corner";
  corner.inputs.clear();
  for (int32_t i = 0; i < 30; ++i) {
    corner.inputs.push_back(
        {i % 2, kMaxCoordinate - i % 3, kMinCoordinate + i / 3 % 3, kMaxCoordinate - i / 9});
  }
  cases.push_back(corner);
  edges.name = "edges_quantize";
  edges.params = Params(kStrided, kQuantize, {3, 3, 3}, {2, 2, 2});
  cases.push_back(edges);
  edges.name = "edges_dilate";
  edges.params = Params(kStrided, kDilate, {3, 3, 3}, {2, 2, 2});
  edges.params.output_bounds = Box{{kMinCoordinate / 2, kMinCoordinate / 2, kMinCoordinate / 2},
                                   {kMaxCoordinate / 2, kMaxCoordinate / 2, kMaxCoordinate / 2}};
  cases.push_back(edges);
  return cases;
}

// The output coordinates of a strided or transposed case, sorted.
inline std::vector<Coordinate> BruteForceOutputs(const std::vector<Coordinate>& inputs,
                                                 const ConvGeometry& geometry) {
  const GeometryParams& params = geometry.params();
  const Int3 step = geometry.output_tensor_stride();
  std::set<Coordinate> outputs;
  const auto floor_to = [](int64_t value, int64_t unit) {
    return value - ((value % unit) + unit) % unit;
  };
  for (const Coordinate& p : inputs) {
    if (geometry.kind() == ConvKind::kStrided && params.rule == OutputRule::kQuantize) {
      outputs.insert({p.b, static_cast<int32_t>(floor_to(p.x, step.x)),
                      static_cast<int32_t>(floor_to(p.y, step.y)),
                      static_cast<int32_t>(floor_to(p.z, step.z))});
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

struct Pairs {
  std::vector<int64_t> offset_ptr{0};
  std::vector<int32_t> in, out;
  friend bool operator==(const Pairs&, const Pairs&) = default;
};

inline Pairs BruteForcePairs(const std::vector<Coordinate>& inputs,
                             const std::vector<Coordinate>& outputs, const ConvGeometry& geometry) {
  Pairs pairs;
  for (const Int3& d : geometry.input_offsets()) {
    for (size_t q = 0; q < outputs.size(); ++q) {
      const Coordinate wanted{outputs[q].b, outputs[q].x + d.x, outputs[q].y + d.y,
                              outputs[q].z + d.z};
      const auto p = std::find(inputs.begin(), inputs.end(), wanted);
      if (p == inputs.end()) continue;
      pairs.in.push_back(static_cast<int32_t>(p - inputs.begin()));
      pairs.out.push_back(static_cast<int32_t>(q));
    }
    pairs.offset_ptr.push_back(static_cast<int64_t>(pairs.in.size()));
  }
  return pairs;
}

// A case ready to be mapped: geometry, inputs and outputs.
struct Problem {
  ConvGeometry geometry;
  std::vector<Coordinate> inputs, outputs;
};

inline Problem MakeProblem(const MapCase& c) {
  const ConvGeometry geometry = *ConvGeometry::Create(c.params);
  std::vector<Coordinate> outputs =
      geometry.keeps_coordinates() ? c.inputs : BruteForceOutputs(c.inputs, geometry);
  if (!c.inverse) return {geometry, c.inputs, outputs};
  return {*ConvGeometry::InverseOf(geometry), outputs, c.inputs};
}

// Runs `spec` on every case it supports, on 1 and 2 threads.
inline void ExpectExactMaps(const Registry& registry, const std::string& spec) {
  const auto mapping = registry.mappings().Create(spec);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  for (const MapCase& c : MapCases()) {
    SCOPED_TRACE(spec + " on " + c.name);
    const Problem problem = MakeProblem(c);
    if (!(*mapping)->Supports(problem.geometry, BackendKind::kCpu).ok) continue;
    const Pairs expected = BruteForcePairs(problem.inputs, problem.outputs, problem.geometry);
    for (int threads : {1, 2}) {
      Cpu cpu(threads);
      const auto inputs = CoordinateSet::Create(
          problem.inputs, problem.geometry.input_tensor_stride(), cpu.context);
      ASSERT_TRUE(inputs.ok()) << inputs.status();
      const auto outputs = CoordinateSet::Create(
          problem.outputs, problem.geometry.output_tensor_stride(), cpu.context);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const auto index = (*mapping)->BuildIndex(**inputs, cpu.context);
      if (index.status().code() == absl::StatusCode::kResourceExhausted &&
          c.name.starts_with("edges")) {
        continue;  // a grid over the whole range
      }
      ASSERT_TRUE(index.ok()) << index.status();
      const auto map =
          (*mapping)->Query(**index, {**inputs, **outputs, problem.geometry}, cpu.context);
      ASSERT_TRUE(map.ok()) << map.status();
      ASSERT_TRUE(map->Validate(cpu.context).ok()) << map->Validate(cpu.context);
      const auto& pairs = map->As<PairList>();
      const Pairs found{map->offset_ptr(), *CopyToHost(pairs.in, cpu.context),
                        *CopyToHost(pairs.out, cpu.context)};
      EXPECT_EQ(found.offset_ptr, expected.offset_ptr);
      EXPECT_TRUE(found == expected);
      EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kIndexBuild)], 1);
      EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);
      EXPECT_EQ(cpu.profile.counters.index_bytes, (*index)->bytes());
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_MAPPING_CASES_H_
