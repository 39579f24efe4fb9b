// SPDX-License-Identifier: Apache-2.0
// Scenes sampled on surfaces: objects with normals, and a furnished room.
#include <array>
#include <cmath>
#include <utility>

#include "voxconv/core/random.h"
#include "voxconv/io/scene_makers.h"
#include "voxconv/io/sin_cos.h"

namespace voxconv::io_internal {
namespace {

using Vector3 = std::array<double, 3>;

void Append(PointCloud& cloud, const Vector3& position, const Vector3& feature) {
  cloud.xyz.insert(cloud.xyz.end(), position.begin(), position.end());
  for (const double value : feature) cloud.features.push_back(static_cast<float>(value));
}

// Samples axis-aligned rectangles and boxes about every `spacing` metres, each sample jittered
// within its cell and off the surface by the depth noise of an RGB-D camera.
class RoomSampler {
 public:
  RoomSampler(double spacing, uint64_t seed) : spacing_(spacing), random_(seed) {
    cloud_.feature_names = {"r", "g", "b"};
  }

  // The rectangle at `corner` spanned by u metres along axis `a` and v metres along axis `b`.
  void Rectangle(const Vector3& corner, size_t a, double u, size_t b, double v,
                 const Vector3& color) {
    constexpr double kDepthNoise = 0.002;  // metres
    const size_t normal = 3 - a - b;
    for (double i = 0; i < u; i += spacing_) {
      for (double j = 0; j < v; j += spacing_) {
        Vector3 position = corner;
        position[a] += i + spacing_ * random_.Uniform();
        position[b] += j + spacing_ * random_.Uniform();
        position[normal] += kDepthNoise * random_.Noise();
        const double shade = random_.Uniform(0.9, 1.0);
        Append(cloud_, position, {color[0] * shade, color[1] * shade, color[2] * shade});
      }
    }
  }

  // The five faces of a box that stands on z = low[2]; its underside is not seen.
  void Box(const Vector3& low, const Vector3& size, const Vector3& color) {
    for (size_t normal = 0; normal < 3; ++normal) {
      const size_t a = (normal + 1) % 3;
      const size_t b = (normal + 2) % 3;
      Vector3 far = low;
      far[normal] += size[normal];
      Rectangle(far, a, size[a], b, size[b], color);
      if (normal != 2) Rectangle(low, a, size[a], b, size[b], color);
    }
  }

  // A slab on four legs, `height` metres tall.
  void Table(const Vector3& low, double width, double depth, double height, const Vector3& color) {
    constexpr double kSlab = 0.04;
    constexpr double kLeg = 0.05;
    Box({low[0], low[1], low[2] + height - kSlab}, {width, depth, kSlab}, color);
    for (const double x : {0.0, width - kLeg}) {
      for (const double y : {0.0, depth - kLeg}) {
        Box({low[0] + x, low[1] + y, low[2]}, {kLeg, kLeg, height - kSlab}, color);
      }
    }
  }

  Random& random() { return random_; }
  PointCloud Take() { return std::move(cloud_); }

 private:
  double spacing_;
  Random random_;
  PointCloud cloud_;
};

}  // namespace

absl::StatusOr<Scene> MakeSphere(const SceneSpec& spec) {
  Random random(spec.Seed());
  PointCloud cloud;
  cloud.feature_names = {"nx", "ny", "nz"};
  for (int64_t i = 0; i < spec.Integer("n"); ++i) {
    // Archimedes: height is uniform over a sphere's surface.
    const double z = random.Uniform(-1, 1);
    const SinCos around = SinCosTurns(random.Uniform());
    const double radius = std::sqrt(1 - z * z);
    const Vector3 normal = {radius * around.cos, radius * around.sin, z};
    Append(cloud, normal, normal);
  }
  return cloud;
}

absl::StatusOr<Scene> MakeTorus(const SceneSpec& spec) {
  constexpr double kRing = 0.7;
  constexpr double kTube = 0.3;
  Random random(spec.Seed());
  PointCloud cloud;
  cloud.feature_names = {"nx", "ny", "nz"};
  while (cloud.size() < spec.Integer("n")) {
    const SinCos tube = SinCosTurns(random.Uniform());
    const double radius = kRing + kTube * tube.cos;
    // The surface is denser in samples where the ring is narrower: accept in proportion to it.
    if (random.Uniform() * (kRing + kTube) > radius) continue;
    const SinCos around = SinCosTurns(random.Uniform());
    Append(cloud, {radius * around.cos, radius * around.sin, kTube * tube.sin},
           {tube.cos * around.cos, tube.cos * around.sin, tube.sin});
  }
  return cloud;
}

absl::StatusOr<Scene> MakeRoom(const SceneSpec& spec) {
  constexpr double kWidth = 4.0, kDepth = 3.0, kHeight = 2.5;  // x, y, z; metres
  const Vector3 wall = {0.9, 0.88, 0.8};
  const Vector3 wood = {0.55, 0.4, 0.25};
  const Vector3 cloth = {0.3, 0.35, 0.6};
  RoomSampler room(spec.Real("spacing"), spec.Seed());
  room.Rectangle({0, 0, 0}, 0, kWidth, 1, kDepth, {0.5, 0.45, 0.4});
  room.Rectangle({0, 0, 0}, 0, kWidth, 2, kHeight, wall);
  room.Rectangle({0, kDepth, 0}, 0, kWidth, 2, kHeight, wall);
  room.Rectangle({0, 0, 0}, 1, kDepth, 2, kHeight, wall);
  room.Rectangle({kWidth, 0, 0}, 1, kDepth, 2, kHeight, wall);
  const double x = room.random().Uniform(1.2, 1.6);
  const double y = room.random().Uniform(0.9, 1.2);
  room.Table({x, y, 0}, 1.4, 0.8, 0.74, wood);
  for (const double side : {-0.5, 0.85}) {
    const double chair_x = x + room.random().Uniform(0.2, 0.8);
    room.Table({chair_x, y + side, 0}, 0.42, 0.42, 0.46, wood);
    room.Box({chair_x, y + side + (side < 0 ? 0.0 : 0.38), 0.46}, {0.42, 0.04, 0.45}, wood);
  }
  room.Box({0.02, 0.3, 0}, {0.85, 1.9, 0.42}, cloth);
  room.Box({0.02, 0.3, 0.42}, {0.2, 1.9, 0.4}, cloth);
  room.Box({3.5, 0.4, 0}, {0.48, 1.2, 1.9}, wood);
  room.Box({3.4, 2.3, 0}, {0.5, 0.5, 0.6}, {0.8, 0.8, 0.82});
  return room.Take();
}

}  // namespace voxconv::io_internal
