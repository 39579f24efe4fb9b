// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/sample_mesh.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/random.h"

namespace voxconv {
namespace {

using Vector3 = std::array<double, 3>;

Vector3 Row(const std::vector<double>& table, int32_t row) {
  const size_t at = static_cast<size_t>(row) * 3;
  return {table[at], table[at + 1], table[at + 2]};
}

double Length(const Vector3& v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

// Normal of the triangle with the length of twice its area.
Vector3 FaceNormal(const Mesh& mesh, const std::array<int32_t, 3>& triangle) {
  const Vector3 a = Row(mesh.vertices, triangle[0]);
  const Vector3 b = Row(mesh.vertices, triangle[1]);
  const Vector3 c = Row(mesh.vertices, triangle[2]);
  const Vector3 u = {b[0] - a[0], b[1] - a[1], b[2] - a[2]};
  const Vector3 v = {c[0] - a[0], c[1] - a[1], c[2] - a[2]};
  return {u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]};
}

Vector3 Interpolate(const std::vector<double>& table, const std::array<int32_t, 3>& triangle,
                    const Vector3& weights) {
  Vector3 out = {0, 0, 0};
  for (size_t corner = 0; corner < 3; ++corner) {
    const Vector3 value = Row(table, triangle[corner]);
    for (size_t axis = 0; axis < 3; ++axis) out[axis] += weights[corner] * value[axis];
  }
  return out;
}

absl::Status CheckMesh(const Mesh& mesh, int64_t samples, absl::string_view name) {
  constexpr int64_t kMaxSamples = 200'000'000;
  if (samples < 1 || samples > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples = ", samples, ": allowed are 1 to ", kMaxSamples));
  }
  if (mesh.triangles.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the mesh has no triangles"));
  }
  const int64_t count = static_cast<int64_t>(mesh.vertices.size() / 3);
  for (const std::array<int32_t, 3>& triangle : mesh.triangles) {
    for (const int32_t vertex : triangle) {
      if (vertex < 0 || vertex >= count) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": a triangle names vertex ", vertex,
                                                       ", but there are ", count, " vertices"));
      }
    }
  }
  if (!std::all_of(mesh.vertices.begin(), mesh.vertices.end(),
                   [](double value) { return std::isfinite(value); })) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a vertex holds NaN or Inf"));
  }
  return absl::OkStatus();
}

void AppendSample(const Mesh& mesh, const std::array<int32_t, 3>& triangle, const Vector3& weights,
                  PointCloud& cloud) {
  const Vector3 position = Interpolate(mesh.vertices, triangle, weights);
  cloud.xyz.insert(cloud.xyz.end(), position.begin(), position.end());
  Vector3 normal = mesh.normals.empty() ? FaceNormal(mesh, triangle)
                                        : Interpolate(mesh.normals, triangle, weights);
  // Opposite vertex normals can cancel; the face's own normal is then the best answer.
  if (!(Length(normal) > 0)) normal = FaceNormal(mesh, triangle);
  const double length = Length(normal);
  for (const double value : normal) cloud.features.push_back(static_cast<float>(value / length));
  if (mesh.colors.empty()) return;
  const Vector3 color = Interpolate(mesh.colors, triangle, weights);
  for (const double value : color) cloud.features.push_back(static_cast<float>(value));
}

}  // namespace

absl::StatusOr<PointCloud> SampleMesh(const Mesh& mesh, int64_t samples, uint64_t seed,
                                      absl::string_view name) {
  if (absl::Status status = CheckMesh(mesh, samples, name); !status.ok()) return status;
  std::vector<double> area_before(mesh.triangles.size() + 1, 0.0);
  for (size_t i = 0; i < mesh.triangles.size(); ++i) {
    area_before[i + 1] = area_before[i] + Length(FaceNormal(mesh, mesh.triangles[i])) / 2;
  }
  const double area = area_before.back();
  if (!(area > 0) || !std::isfinite(area)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the mesh's area is ", area));
  }
  PointCloud cloud{.from_mesh = true};
  cloud.feature_names = {"nx", "ny", "nz"};
  if (!mesh.colors.empty()) cloud.feature_names.insert(cloud.feature_names.end(), {"r", "g", "b"});
  Random random(seed);
  for (int64_t i = 0; i < samples; ++i) {
    // upper_bound never lands on a triangle without area: it adds nothing to the running sum.
    const auto after =
        std::upper_bound(area_before.begin() + 1, area_before.end() - 1, random.Uniform() * area);
    const size_t index = static_cast<size_t>(after - area_before.begin()) - 1;
    const double root = std::sqrt(random.Uniform());
    const double v = random.Uniform();
    const Vector3 weights = {1 - root, root * (1 - v), root * v};
    AppendSample(mesh, mesh.triangles[index], weights, cloud);
  }
  DropNonFiniteRows(cloud);
  return cloud;
}

}  // namespace voxconv
