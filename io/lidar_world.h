// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_LIDAR_WORLD_H_
#define VOXCONV_IO_LIDAR_WORLD_H_

#include <array>
#include <cstdint>
#include <vector>

namespace voxconv::io_internal {

// A street as a list of simple solids over the ground plane z = 0, in metres; the road runs along
// x.
struct Solid {
  enum class Shape { kBox, kCylinder, kSphere };

  Shape shape = Shape::kBox;
  std::array<double, 3> centre = {0, 0, 0};
  std::array<double, 3> half = {0, 0, 0};  // box: half its edges; cylinder, sphere: radius, -, half
  double cos_yaw = 1;                      // box only: turned about z
  double sin_yaw = 0;
  double reflectivity = 0.5;
  double roughness = 0;     // metres, standard deviation of the surface's depth
  double transparency = 0;  // chance that a ray passes through (foliage)
};

std::vector<Solid> MakeStreet(uint64_t seed);

// Radius of the solid's footprint about its centre.
double FootprintRadius(const Solid& solid);

// The distance from `origin` to the solid's surface along `direction`, a unit vector. +infinity if
// the ray misses the solid or `origin` lies inside.
double Intersect(const Solid& solid, const std::array<double, 3>& origin,
                 const std::array<double, 3>& direction);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_LIDAR_WORLD_H_
