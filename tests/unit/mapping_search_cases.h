// Map problems for the unit tests of mappings, and their maps by brute force.
#ifndef VOXCONV_TESTS_UNIT_MAPPING_SEARCH_CASES_H_
#define VOXCONV_TESTS_UNIT_MAPPING_SEARCH_CASES_H_

#include <algorithm>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "backends/cpu/cpu_backend.h"
#include "core/coordinate_key.h"
#include "core/coordinate_set.h"
#include "core/geometry.h"
#include "core/kernel_map.h"
#include "core/mapping.h"
#include "core/registry.h"
#include "gtest/gtest.h"

namespace voxconv {

// A CPU backend and a context on it that records into `profile`.
struct CpuSession {
  explicit CpuSession(int threads)
      : backend(*CpuBackend::Create({.threads = threads})),
        context{backend.get(), &backend->main_stream(), &profile} {}

  Profile profile;
  std::unique_ptr<CpuBackend> backend;
  ExecutionContext context;
};

struct MappingCase {
  std::string name;
  GeometryParams geometry;
  std::vector<Coordinate> inputs, outputs;
  Int3 input_stride, output_stride;

  friend void PrintTo(const MappingCase& c, std::ostream* os) { *os << c.name; }
};

// (offset, output row, input row) in canonical order.
using Triples = std::vector<std::tuple<int, int, int>>;

inline Triples BruteForce(const MappingCase& c, const ConvGeometry& geometry) {
  Triples triples;
  for (int k = 0; k < geometry.num_offsets(); ++k) {
    const Int3 d = geometry.InputOffset(k);
    for (size_t q = 0; q < c.outputs.size(); ++q) {
      const Coordinate& o = c.outputs[q];
      for (size_t p = 0; p < c.inputs.size(); ++p) {
        if (c.inputs[p] == Coordinate{o.b, o.x + d.x, o.y + d.y, o.z + d.z}) {
          triples.emplace_back(k, q, p);
        }
      }
    }
  }
  return triples;
}

inline Triples MapTriples(const KernelMap& map) {
  const PairList& pairs = map.As<PairList>();
  Triples triples;
  for (int k = 0; k < map.num_offsets(); ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      triples.emplace_back(k, pairs.out.data()[i], pairs.in.data()[i]);
    }
  }
  return triples;
}

// The map by `mapping`; outputs are the input set itself where the geometry keeps coordinates.
inline absl::StatusOr<KernelMap> RunMapping(const Mapping& mapping, const MappingCase& c,
                                            const ConvGeometry& geometry, CpuSession& session) {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr inputs,
                           CoordinateSet::Create(c.inputs, c.input_stride, session.context));
  CoordinateSetPtr outputs = inputs;
  if (!geometry.keeps_coordinates()) {
    VOXCONV_ASSIGN_OR_RETURN(outputs,
                             CoordinateSet::Create(c.outputs, c.output_stride, session.context));
  }
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           mapping.BuildIndex(*inputs, session.context));
  return mapping.Query(*index, {*inputs, *outputs, geometry}, session.context);
}

// `count` distinct voxels in [lo, hi]^3 of every batch, multiples of `stride`, in random order.
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

inline int32_t FloorTo(int32_t value, int32_t step) {
  const int32_t remainder = value % step;
  return value - remainder - (remainder < 0 ? step : 0);
}

// Which outputs an operation has is not a mapping's business; these merely overlap well.
inline std::vector<Coordinate> Coarsened(const std::vector<Coordinate>& voxels, const Int3& step) {
  std::set<Coordinate> coarse;
  for (const Coordinate& c : voxels) {
    coarse.insert({c.b, FloorTo(c.x, step.x), FloorTo(c.y, step.y), FloorTo(c.z, step.z)});
  }
  return {coarse.begin(), coarse.end()};
}

inline std::vector<Coordinate> Sorted(std::vector<Coordinate> voxels) {
  std::sort(voxels.begin(), voxels.end());
  return voxels;
}

inline MappingCase Submanifold(std::string name, std::vector<Coordinate> voxels, Int3 kernel,
                               Int3 dilation = {1, 1, 1}, Int3 tensor_stride = {1, 1, 1}) {
  GeometryParams params{.kernel = kernel, .dilation = dilation};
  params.input_tensor_stride = tensor_stride;
  return {std::move(name), params, voxels, voxels, tensor_stride, tensor_stride};
}

// From voxels of tensor stride `t` to their coarsening by `stride`; `rule` and `padding` as given.
inline MappingCase Strided(std::string name, std::vector<Coordinate> fine, Int3 t, Int3 stride,
                           Int3 kernel, OutputRule rule = OutputRule::kQuantize,
                           Int3 padding = {0, 0, 0}) {
  GeometryParams params{.kind = ConvKind::kStrided, .rule = rule, .kernel = kernel};
  params.stride = stride;
  params.padding = padding;
  params.input_tensor_stride = t;
  const Int3 step{t.x * stride.x, t.y * stride.y, t.z * stride.z};
  std::vector<Coordinate> coarse = Coarsened(fine, step);
  return {std::move(name), params, std::move(fine), std::move(coarse), t, step};
}

// The case with inputs and outputs exchanged, as `kind`.
inline MappingCase Exchanged(std::string name, MappingCase c, ConvKind kind) {
  c.name = std::move(name);
  c.geometry.kind = kind;
  c.geometry.input_tensor_stride = c.output_stride;
  std::swap(c.inputs, c.outputs);
  std::swap(c.input_stride, c.output_stride);
  return c;
}

inline std::vector<MappingCase> MappingCases() {
  const Int3 one{1, 1, 1}, two{2, 2, 2}, three{3, 3, 3};
  const std::vector<Coordinate> cloud = RandomVoxels(150, {0, 2}, -6, 6, one, 1);
  const std::vector<Coordinate> even = RandomVoxels(120, {0, 1}, -14, 14, {2, 2, 2}, 2);
  std::vector<Coordinate> edges = RandomVoxels(40, {0, 511}, 131068, 131071, one, 3);
  for (const Coordinate& c : RandomVoxels(40, {0, 511}, -131072, -131069, one, 4)) {
    edges.push_back(c);
    edges.push_back({c.b, -1 - c.x, c.y, -1 - c.z});
  }
  const MappingCase quantize = Strided("QuantizeK3S2", cloud, one, two, three);
  const MappingCase dilate =
      Strided("DilateK3S2P1", cloud, one, two, three, OutputRule::kDilate, one);
  const MappingCase uneven = Strided("QuantizeAxes", even, two, {1, 2, 3}, {2, 3, 4});
  std::vector<Coordinate> block;
  for (int i = 0; i < 216; ++i) block.push_back({0, i / 36 - 3, i / 6 % 6, i % 6});
  MappingCase unsorted = quantize;
  unsorted.name = "QuantizeUnsortedOutputs";
  std::reverse(unsorted.outputs.begin(), unsorted.outputs.end());
  return {
      Submanifold("K3", Sorted(cloud), three),
      Submanifold("K3Unsorted", cloud, three),
      Submanifold("K5x1x3", cloud, {5, 1, 3}),
      Submanifold("K1x1x11", Sorted(cloud), {1, 1, 11}),
      Submanifold("K1", cloud, one),
      Submanifold("K2", Sorted(cloud), two),
      Submanifold("K4x3x2", cloud, {4, 3, 2}),
      Submanifold("K3D2", Sorted(cloud), three, two),
      Submanifold("K3D1x2x3Unsorted", cloud, three, {1, 2, 3}),
      Submanifold("K3T2", even, three, one, two),
      Submanifold("BlockK3", block, three),
      Submanifold("Empty", {}, three),
      Submanifold("OneVoxel", {{3, -7, 0, 9}}, three),
      Submanifold("Edges", Sorted(edges), three),
      Submanifold("EdgesUnsortedK5", edges, {5, 5, 5}),
      Submanifold("EdgesK2", edges, two),
      quantize,
      unsorted,
      dilate,
      uneven,
      Strided("QuantizeK2S2", Sorted(cloud), one, two, two),
      Strided("DilateS3", cloud, one, {3, 3, 3}, three, OutputRule::kDilate, {1, 0, -1}),
      Strided("BlockS8", block, one, {8, 8, 8}, three),
      Exchanged("InverseQuantize", quantize, ConvKind::kInverse),
      Exchanged("InverseDilate", dilate, ConvKind::kInverse),
      Exchanged("InverseAxes", uneven, ConvKind::kInverse),
      Exchanged("Transposed", Strided("", cloud, one, two, two), ConvKind::kTransposed),
  };
}

// Runs `spec` on `c` with 1 and 2 threads and compares with brute force.
inline void ExpectExactMap(const Registry& registry, const std::string& spec,
                           const MappingCase& c) {
  SCOPED_TRACE(spec);
  const auto geometry = ConvGeometry::Create(c.geometry);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  const auto mapping = registry.mappings().Create(spec);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  if (!(*mapping)->Supports(*geometry, BackendKind::kCpu).ok) return;
  const Triples expected = BruteForce(c, *geometry);
  for (int threads : {1, 2}) {
    CpuSession session(threads);
    const auto map = RunMapping(**mapping, c, *geometry, session);
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(MapTriples(*map), expected) << threads << " threads";
    EXPECT_EQ(map->identity_offset(), geometry->center());
    EXPECT_TRUE(map->Validate(session.context).ok());
  }
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_MAPPING_SEARCH_CASES_H_
