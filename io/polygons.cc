// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/polygons.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace voxconv::io_internal {
namespace {

constexpr int64_t kMostCornersWithEars = 256;

struct FlatPoint {
  double u = 0, v = 0;
};

// Twice the signed area of the triangle; positive where it turns left.
double Turn(const FlatPoint& a, const FlatPoint& b, const FlatPoint& c) {
  return (b.u - a.u) * (c.v - a.v) - (b.v - a.v) * (c.u - a.u);
}

// The corners seen along the axis of the face's largest normal component (Newell's sum), so that
// the face turns left. Area is all that is lost.
std::vector<FlatPoint> Flatten(absl::Span<const int64_t> corners, const Mesh& mesh) {
  const auto at = [&](size_t i, size_t axis) {
    return mesh.vertices[static_cast<size_t>(corners[i % corners.size()]) * 3 + axis];
  };
  std::array<double, 3> normal = {0, 0, 0};
  for (size_t i = 0; i < corners.size(); ++i) {
    for (size_t axis = 0; axis < 3; ++axis) {
      const size_t u = (axis + 1) % 3, v = (axis + 2) % 3;
      normal[axis] += (at(i, u) - at(i + 1, u)) * (at(i, v) + at(i + 1, v));
    }
  }
  size_t main = 0;
  for (size_t axis = 1; axis < 3; ++axis) {
    if (std::abs(normal[axis]) > std::abs(normal[main])) main = axis;
  }
  size_t u = (main + 1) % 3, v = (main + 2) % 3;
  if (normal[main] < 0) std::swap(u, v);
  std::vector<FlatPoint> flat(corners.size());
  for (size_t i = 0; i < flat.size(); ++i) flat[i] = {at(i, u), at(i, v)};
  return flat;
}

bool IsConvex(const std::vector<FlatPoint>& flat) {
  for (size_t i = 0; i < flat.size(); ++i) {
    if (Turn(flat[i], flat[(i + 1) % flat.size()], flat[(i + 2) % flat.size()]) < 0) return false;
  }
  return true;
}

// Whether the triangle at position i of `left` holds no other corner.
bool IsEar(const std::vector<FlatPoint>& flat, const std::vector<size_t>& left, size_t i) {
  const size_t n = left.size();
  const size_t ia = left[(i + n - 1) % n], ib = left[i], ic = left[(i + 1) % n];
  const FlatPoint &a = flat[ia], &b = flat[ib], &c = flat[ic];
  if (!(Turn(a, b, c) > 0)) return false;
  return std::none_of(left.begin(), left.end(), [&](size_t other) {
    if (other == ia || other == ib || other == ic) return false;
    const FlatPoint& p = flat[other];
    return Turn(a, b, p) >= 0 && Turn(b, c, p) >= 0 && Turn(c, a, p) >= 0;
  });
}

void AppendFace(absl::Span<const int64_t> corners, const std::vector<FlatPoint>& flat, Mesh& mesh) {
  const auto append = [&](size_t a, size_t b, size_t c) {
    mesh.triangles.push_back({static_cast<int32_t>(corners[a]), static_cast<int32_t>(corners[b]),
                              static_cast<int32_t>(corners[c])});
  };
  std::vector<size_t> left(corners.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  // A face that crosses itself may have no ear left; the rest of it is a fan then.
  for (bool found = !flat.empty(); found && left.size() > 3;) {
    found = false;
    for (size_t i = 0; i < left.size() && left.size() > 3; ++i) {
      if (!IsEar(flat, left, i)) continue;
      const size_t n = left.size();
      append(left[(i + n - 1) % n], left[i], left[(i + 1) % n]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      found = true;
    }
  }
  for (size_t i = 1; i + 1 < left.size(); ++i) append(left[0], left[i], left[i + 1]);
}

}  // namespace

absl::Status AppendTriangles(const Polygons& faces, absl::string_view name, Mesh& mesh) {
  const int64_t vertices = static_cast<int64_t>(mesh.vertices.size() / 3);
  if (vertices > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has ", vertices, " vertices; allowed are fewer than 2^31"));
  }
  absl::Span<const int64_t> rest = faces.corners;
  for (size_t face = 0; face < faces.sizes.size(); ++face) {
    const int64_t size = faces.sizes[face];
    const auto refused = [&](absl::string_view what, absl::string_view allowed) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": face ", face, " has ", what, "; ", allowed));
    };
    if (size < 3) return refused(absl::StrCat(size, " corners"), "allowed are 3 or more");
    const absl::Span<const int64_t> corners = rest.first(static_cast<size_t>(size));
    rest.remove_prefix(static_cast<size_t>(size));
    for (const int64_t corner : corners) {
      if (corner >= 0 && corner < vertices) continue;
      return refused(absl::StrCat("vertex ", corner),
                     absl::StrCat("there are ", vertices, ", counted from 0"));
    }
    std::vector<FlatPoint> flat;
    if (size > 3) flat = Flatten(corners, mesh);
    if (IsConvex(flat)) flat.clear();
    if (!flat.empty() && size > kMostCornersWithEars) {
      return refused(absl::StrCat(size, " corners, some of them inward"),
                     absl::StrCat("allowed are ", kMostCornersWithEars));
    }
    AppendFace(corners, flat, mesh);
  }
  return absl::OkStatus();
}

}  // namespace voxconv::io_internal
