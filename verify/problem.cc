// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/problem.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/random.h"
#include "voxconv/networks/reference_network.h"

namespace voxconv::verify {
namespace {

// The greatest difference on any axis.
int64_t Distance(const Coordinate& a, const Coordinate& b) {
  if (a.b != b.b) return INT64_MAX;
  return std::max(
      {std::abs(int64_t{a.x} - b.x), std::abs(int64_t{a.y} - b.y), std::abs(int64_t{a.z} - b.z)});
}

std::vector<Coordinate> Cluster(uint64_t seed, int32_t batch, int count, const Int3& lo,
                                const Int3& extent) {
  Random random(seed);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random.Below(n)); };
  std::set<Coordinate> rows;
  for (int i = 0; i < count; ++i) {
    rows.insert({batch, lo.x + below(extent.x), lo.y + below(extent.y), lo.z + below(extent.z)});
  }
  return {rows.begin(), rows.end()};
}

void Append(std::vector<Coordinate>& rows, const std::vector<Coordinate>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

std::vector<Coordinate> Shuffled(std::vector<Coordinate> rows, uint64_t seed) {
  Random random(seed);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.Below(i)]);
  return rows;
}

// A tilted ground and a wall, as a LiDAR sees them: thin in one direction, long in the others.
std::vector<Coordinate> Surfaces() {
  std::set<Coordinate> rows;
  for (int32_t x = -12; x < 12; ++x) {
    for (int32_t y = -6; y < 6; ++y) {
      if ((x * 7 + y * 3) % 4 != 0) rows.insert({0, x, y, x / 5 - 1});
    }
  }
  for (int32_t x = -12; x < 12; ++x) {
    for (int32_t z = -2; z < 6; ++z) {
      if ((x + z * 5) % 3 != 0) rows.insert({0, x, 6, z});
    }
  }
  return {rows.begin(), rows.end()};
}

std::vector<Coordinate> RangeEdges() {
  std::set<Coordinate> rows;
  for (const int32_t x :
       {kMinCoordinate, kMinCoordinate + 1, 0, kMaxCoordinate - 1, kMaxCoordinate}) {
    for (const int32_t y : {kMinCoordinate, -1, 0, kMaxCoordinate}) {
      for (const int32_t z : {kMinCoordinate, kMinCoordinate + 1, kMaxCoordinate}) {
        for (const int32_t b : {0, kMaxBatch}) rows.insert({b, x, y, z});
      }
    }
  }
  return {rows.begin(), rows.end()};
}

std::vector<Scene> MakeScenes() {
  std::vector<Scene> scenes;
  scenes.push_back({"cluster", Cluster(1, 0, 260, {-4, -3, -5}, {8, 7, 9})});
  // Sample 1 is empty, and the samples overlap in space: batches must not meet.
  std::vector<Coordinate> batches = Cluster(2, 0, 70, {-3, 0, 0}, {6, 5, 5});
  Append(batches, Cluster(3, 2, 90, {-3, 1, -2}, {6, 5, 5}));
  scenes.push_back({"batches", batches});
  scenes.push_back({"surfaces", Surfaces()});
  scenes.push_back({"unsorted", Shuffled(batches, 4)});
  scenes.push_back({.name = "sparse",
                    .rows = Cluster(5, 0, 120, {-60000, -60000, -60000}, {120000, 120000, 120000}),
                    .huge_bounds = true});
  scenes.push_back(
      {.name = "range_edges", .rows = RangeEdges(), .at_range_edge = true, .huge_bounds = true});
  scenes.push_back({"one_voxel", {{0, -7, 3, 5}}});
  scenes.push_back({"empty", {}});
  return scenes;
}

std::vector<NamedGeometry> MakeGeometries() {
  using enum ConvKind;
  const auto submanifold = [](Int3 kernel, Int3 dilation = {1, 1, 1}) {
    return GeometryParams{.kind = kSubmanifold, .kernel = kernel, .dilation = dilation};
  };
  const auto strided = [](ConvKind kind, OutputRule rule, Int3 kernel, Int3 stride,
                          Int3 padding = {0, 0, 0}, Int3 dilation = {1, 1, 1}) {
    return GeometryParams{.kind = kind,
                          .rule = rule,
                          .kernel = kernel,
                          .stride = stride,
                          .dilation = dilation,
                          .padding = padding};
  };
  constexpr OutputRule kQuantize = OutputRule::kQuantize, kDilate = OutputRule::kDilate;
  std::vector<NamedGeometry> all = {
      {"submanifold_k3", submanifold({3, 3, 3})},
      {"submanifold_k1", submanifold({1, 1, 1})},
      {"submanifold_k5", submanifold({5, 5, 5})},
      {"submanifold_k2", submanifold({2, 2, 2})},
      {"submanifold_k3x1x5", submanifold({3, 1, 5})},
      {"submanifold_k2x3x4", submanifold({2, 3, 4})},
      {"submanifold_k3_d2x1x3", submanifold({3, 3, 3}, {2, 1, 3})},
      {"quantize_k2_s2", strided(kStrided, kQuantize, {2, 2, 2}, {2, 2, 2})},
      {"quantize_k3_s2", strided(kStrided, kQuantize, {3, 3, 3}, {2, 2, 2})},
      {"quantize_k3x2x1_s1x2x3",
       strided(kStrided, kQuantize, {3, 2, 1}, {1, 2, 3}, {0, 0, 0}, {2, 1, 1})},
      {"dilate_k3_s2", strided(kStrided, kDilate, {3, 3, 3}, {2, 2, 2})},
      {"dilate_k2_s2", strided(kStrided, kDilate, {2, 2, 2}, {2, 2, 2})},
      {"dilate_k3_s2_p1x0x-1", strided(kStrided, kDilate, {3, 3, 3}, {2, 2, 2}, {1, 0, -1})},
      {"dilate_k1x3x1_s1x2x1", strided(kStrided, kDilate, {1, 3, 1}, {1, 2, 1})},
      {"inverse_quantize_k2_s2", strided(kInverse, kQuantize, {2, 2, 2}, {2, 2, 2})},
      {"inverse_quantize_k3_s2", strided(kInverse, kQuantize, {3, 3, 3}, {2, 2, 2})},
      {"inverse_dilate_k3_s2_p1", strided(kInverse, kDilate, {3, 3, 3}, {2, 2, 2}, {1, 1, 1})},
      {"transposed_k2_s2", strided(kTransposed, kQuantize, {2, 2, 2}, {2, 2, 2})},
      {"transposed_k3_s2", strided(kTransposed, kQuantize, {3, 3, 3}, {2, 2, 2})},
      {"transposed_k3x2x1_s2x1x1", strided(kTransposed, kQuantize, {3, 2, 1}, {2, 1, 1})},
  };
  GeometryParams bounded = strided(kStrided, kDilate, {3, 3, 3}, {2, 2, 2});
  bounded.output_bounds = Box{{-1, -1, -2}, {1, 2, 1}};
  all.push_back({"dilate_k3_s2_bounded", bounded});
  return all;
}

bool Applies(const GeometryParams& params, const Scene& scene) {
  if (!scene.at_range_edge) return true;
  // Outputs of `dilate` and `transposed` would leave the range, which is an error of its own.
  if (params.kind == ConvKind::kTransposed) return false;
  if (params.kind == ConvKind::kSubmanifold) return true;
  // Rounding down must not leave the range either.
  return params.rule == OutputRule::kQuantize && kMinCoordinate % params.stride.x == 0 &&
         kMinCoordinate % params.stride.y == 0 && kMinCoordinate % params.stride.z == 0;
}

std::vector<Coordinate> Scaled(std::vector<Coordinate> rows, const Int3& factor) {
  for (Coordinate& c : rows) {
    c.x *= factor.x;
    c.y *= factor.y;
    c.z *= factor.z;
  }
  return rows;
}

}  // namespace

const std::vector<Scene>& Scenes() {
  static const auto* scenes = new std::vector<Scene>(MakeScenes());
  return *scenes;
}

const Scene& LargeScene() {
  static const auto* large = [] {
    auto* scene = new Scene{.name = "large"};
    for (int32_t x = 0; x < 150; ++x) {
      for (int32_t y = 0; y < 140; ++y) scene->rows.push_back({0, x, y, (x * 7 + y * 13) % 5});
    }
    return scene;
  }();
  return *large;
}

const std::vector<NamedGeometry>& Geometries() {
  static const auto* geometries = new std::vector<NamedGeometry>(MakeGeometries());
  return *geometries;
}

const NamedGeometry& GeometryNamed(absl::string_view name) {
  for (const NamedGeometry& geometry : Geometries()) {
    if (geometry.name == name) return geometry;
  }
  VOXCONV_CHECK(false);
  return Geometries().front();
}

std::vector<std::string> GeometryOfEachKind() {
  return {"submanifold_k3",         "quantize_k2_s2",          "dilate_k3_s2",
          "inverse_quantize_k2_s2", "inverse_dilate_k3_s2_p1", "transposed_k2_s2"};
}

absl::StatusOr<CoordinateSetPtr> Problem::MakeInputs(const ExecutionContext& context) const {
  return CoordinateSet::Create(inputs, geometry.input_tensor_stride(), context);
}

absl::StatusOr<CoordinateSetPtr> Problem::MakeOutputs(const CoordinateSetPtr& input_set,
                                                      const ExecutionContext& context) const {
  if (geometry.keeps_coordinates()) return input_set;
  return CoordinateSet::Create(outputs, geometry.output_tensor_stride(), context);
}

GeometryParams PlacedGeometry(GeometryParams geometry) {
  if (geometry.kind == ConvKind::kInverse || geometry.kind == ConvKind::kTransposed) {
    geometry.input_tensor_stride = geometry.stride;
  }
  return geometry;
}

std::unique_ptr<Problem> MakeProblem(const NamedGeometry& named, const Scene& scene) {
  if (!Applies(named.params, scene)) return nullptr;
  const GeometryParams params = PlacedGeometry(named.params);
  std::vector<Coordinate> rows = scene.rows;
  if (params.kind == ConvKind::kTransposed) rows = Scaled(rows, params.stride);
  absl::StatusOr<ConvGeometry> geometry = ConvGeometry::Create(params);
  VOXCONV_CHECK(geometry.ok());
  auto problem = std::make_unique<Problem>(
      Problem{named.name + "/" + scene.name, *geometry, rows, {}, {}, scene.huge_bounds});

  const reference::Geometry oracle = ToReferenceGeometry(geometry->params());
  if (params.kind == ConvKind::kInverse) {
    reference::Geometry strided = oracle;
    strided.kind = reference::Kind::kStrided;
    problem->outputs = rows;
    problem->inputs = FromReference(reference::OutputCoordinates(ToReference(rows), strided));
  } else {
    problem->outputs = FromReference(reference::OutputCoordinates(ToReference(rows), oracle));
  }
  problem->map = reference::BuildKernelMap(ToReference(problem->inputs),
                                           ToReference(problem->outputs), oracle);
  return problem;
}

std::vector<reference::Coord> ToReference(const std::vector<Coordinate>& rows) {
  std::vector<reference::Coord> result;
  result.reserve(rows.size());
  for (const Coordinate& c : rows) result.push_back({c.b, c.x, c.y, c.z});
  return result;
}

std::vector<Coordinate> FromReference(absl::Span<const reference::Coord> rows) {
  std::vector<Coordinate> result;
  result.reserve(rows.size());
  for (const reference::Coord& c : rows) result.push_back({c.b, c.x, c.y, c.z});
  return result;
}

std::vector<int64_t> CropRows(absl::Span<const Coordinate> rows, int64_t limit) {
  std::vector<int64_t> nearest(rows.size());
  std::iota(nearest.begin(), nearest.end(), 0);
  if (static_cast<int64_t>(rows.size()) <= limit) return nearest;
  const Coordinate& middle = rows[rows.size() / 2];
  const auto nearer = [&](int64_t i, int64_t j) {
    return std::pair(Distance(rows[i], middle), i) < std::pair(Distance(rows[j], middle), j);
  };
  std::nth_element(nearest.begin(), nearest.begin() + limit, nearest.end(), nearer);
  nearest.resize(limit);
  std::sort(nearest.begin(), nearest.end());
  return nearest;
}

const Problem* ProblemCache::Get(const NamedGeometry& geometry, const Scene& scene) {
  auto [it, inserted] = problems_.try_emplace({geometry.name, scene.name});
  if (inserted) it->second = MakeProblem(geometry, scene);
  return it->second.get();
}

}  // namespace voxconv::verify
