// SPDX-License-Identifier: Apache-2.0
// A spinning LiDAR on a car's roof, ray-cast through a street. Shaped after an HDL-64E: 64 beams
// from +2 to -24.8 degrees, about 2000 firings a revolution, ranges to 80 m, a few millimetres to
// centimetres of range noise, a few percent of shots without return.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "voxconv/core/random.h"
#include "voxconv/io/lidar_world.h"
#include "voxconv/io/scene_makers.h"
#include "voxconv/io/sin_cos.h"

namespace voxconv::io_internal {
namespace {

using Vector3 = std::array<double, 3>;

constexpr double kSensorHeight = 1.73;  // metres above the ground
constexpr double kMinRange = 2.0;       // metres; nearer returns come from the car itself
constexpr double kMaxRange = 80.0;
constexpr double kRangeNoise = 0.005;  // metres, standard deviation
constexpr double kGroundRoughness = 0.002;
constexpr double kDropout = 0.04;
constexpr double kSweepSeconds = 0.1;
constexpr double kEgoMetres = 0.8;  // per sweep, along +x: 8 m/s

// Elevation of a beam in turns, top first: the upper half of an HDL-64E's beams are a third of a
// degree apart, the lower half are half a degree apart. Other beam counts share the same span.
double BeamTurns(int64_t beam, int64_t beams) {
  const double step = beams > 1 ? static_cast<double>(beam) / static_cast<double>(beams - 1) : 0.5;
  const double degrees = step < 0.5 ? 2.0 - 20.8 * step : -8.4 - 32.8 * (step - 0.5);
  return degrees / 360;
}

struct Hit {
  double range = std::numeric_limits<double>::infinity();
  double reflectivity = 0;
  double roughness = 0;
};

class Scanner {
 public:
  Scanner(const SceneSpec& spec, std::vector<Solid> street)
      : beams_(spec.Integer("beams")),
        azimuths_(spec.Integer("azimuths")),
        sweeps_(spec.Integer("sweeps")),
        street_(std::move(street)),
        random_(spec.Seed() + 1) {}

  PointCloud Scan() {
    cloud_.feature_names = {"intensity"};
    if (sweeps_ > 1) cloud_.feature_names.emplace_back("dt");
    for (int64_t sweep = 0; sweep < sweeps_; ++sweep) {
      const int64_t age = sweeps_ - 1 - sweep;
      const Vector3 sensor = {-kEgoMetres * static_cast<double>(age), 0, kSensorHeight};
      for (int64_t azimuth = 0; azimuth < azimuths_; ++azimuth) Fire(sensor, azimuth, age);
    }
    return std::move(cloud_);
  }

 private:
  // One firing of all beams at an azimuth. The beams share a vertical plane, so the solids that
  // this plane misses are left out once for all of them.
  void Fire(const Vector3& sensor, int64_t azimuth, int64_t age) {
    const SinCos heading =
        SinCosTurns((static_cast<double>(azimuth) + 0.5) / static_cast<double>(azimuths_));
    visible_.clear();
    for (const Solid& solid : street_) {
      const double x = solid.centre[0] - sensor[0];
      const double y = solid.centre[1] - sensor[1];
      const double radius = FootprintRadius(solid);
      const double ahead = x * heading.cos + y * heading.sin;
      const double aside = y * heading.cos - x * heading.sin;
      if (std::abs(aside) <= radius && ahead >= -radius) visible_.push_back(&solid);
    }
    for (int64_t beam = 0; beam < beams_; ++beam) {
      const SinCos elevation = SinCosTurns(BeamTurns(beam, beams_));
      Measure(sensor, {elevation.cos * heading.cos, elevation.cos * heading.sin, elevation.sin},
              age);
    }
  }

  void Measure(const Vector3& sensor, const Vector3& direction, int64_t age) {
    const Hit hit = FirstHit(sensor, direction);
    if (!(hit.range < kMaxRange) || random_.Uniform() < kDropout) return;
    const double range = hit.range + (kRangeNoise + hit.roughness) * random_.Noise();
    if (range < kMinRange) return;
    // In the last sweep's frame: its sensor is the origin, the ground lies at -kSensorHeight.
    cloud_.xyz.push_back(sensor[0] + range * direction[0]);
    cloud_.xyz.push_back(sensor[1] + range * direction[1]);
    cloud_.xyz.push_back(sensor[2] + range * direction[2] - kSensorHeight);
    const double intensity = hit.reflectivity * random_.Uniform(0.7, 1.0);
    cloud_.features.push_back(static_cast<float>(intensity));
    if (sweeps_ > 1) {
      cloud_.features.push_back(static_cast<float>(kSweepSeconds * static_cast<double>(age)));
    }
  }

  Hit FirstHit(const Vector3& sensor, const Vector3& direction) {
    Hit hit;
    if (direction[2] < 0) {
      hit = {-sensor[2] / direction[2], 0.25, kGroundRoughness / -direction[2]};
      hit.roughness = std::min(hit.roughness, 0.1);
    }
    for (const Solid* solid : visible_) {
      const double range = Intersect(*solid, sensor, direction);
      if (range >= hit.range) continue;
      if (solid->transparency > 0 && random_.Uniform() < solid->transparency) continue;
      hit = {range, solid->reflectivity, solid->roughness};
    }
    return hit;
  }

  int64_t beams_;
  int64_t azimuths_;
  int64_t sweeps_;
  std::vector<Solid> street_;
  Random random_;
  std::vector<const Solid*> visible_;
  PointCloud cloud_;
};

}  // namespace

absl::StatusOr<Scene> MakeLidar(const SceneSpec& spec) {
  return Scanner(spec, MakeStreet(spec.Seed())).Scan();
}

}  // namespace voxconv::io_internal
