// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/lidar_world.h"

#include <cmath>
#include <limits>
#include <utility>

#include "voxconv/core/random.h"
#include "voxconv/io/sin_cos.h"

namespace voxconv::io_internal {
namespace {

constexpr double kMiss = std::numeric_limits<double>::infinity();
constexpr double kStreetEnd = 90.0;  // metres before and behind the sensor

Solid Box(double x, double y, double low_z, const std::array<double, 3>& size, double yaw_turns) {
  Solid box;
  box.centre = {x, y, low_z + size[2] / 2};
  box.half = {size[0] / 2, size[1] / 2, size[2] / 2};
  const SinCos yaw = SinCosTurns(yaw_turns);
  box.cos_yaw = yaw.cos;
  box.sin_yaw = yaw.sin;
  return box;
}

Solid Cylinder(double x, double y, double radius, double height) {
  Solid cylinder;
  cylinder.shape = Solid::Shape::kCylinder;
  cylinder.centre = {x, y, height / 2};
  cylinder.half = {radius, radius, height / 2};
  return cylinder;
}

Solid Sphere(double x, double y, double z, double radius) {
  Solid sphere;
  sphere.shape = Solid::Shape::kSphere;
  sphere.centre = {x, y, z};
  sphere.half = {radius, radius, radius};
  return sphere;
}

// Below, a call takes at most one random argument: the order in which arguments are evaluated is
// the compiler's choice, and the street must not be.

void AddBuildings(double side, Random& random, std::vector<Solid>& street) {
  for (double x = -kStreetEnd; x < kStreetEnd;) {
    const double length = random.Uniform(8, 22);
    const double depth = 8;
    const double facade = side * random.Uniform(13, 20);
    Solid building = Box(x + length / 2, facade + side * depth / 2, 0,
                         {length, depth, random.Uniform(4, 12)}, 0);
    building.reflectivity = random.Uniform(0.2, 0.5);
    building.roughness = 0.01;  // window reveals, plaster
    street.push_back(building);
    x += length + (random.Uniform() < 0.4 ? random.Uniform(2, 8) : 0.0);
  }
}

void AddHedges(double side, Random& random, std::vector<Solid>& street) {
  for (double x = -kStreetEnd; x < kStreetEnd; x += random.Uniform(8, 16)) {
    if (random.Uniform() < 0.5) continue;
    const double y = side * random.Uniform(10.5, 12);
    const double length = random.Uniform(3, 7);
    const double height = random.Uniform(0.8, 1.6);
    Solid hedge = Box(x, y, 0, {length, 0.8, height}, 0);
    hedge.reflectivity = 0.3;
    hedge.roughness = 0.08;
    hedge.transparency = 0.1;
    street.push_back(hedge);
  }
}

void AddCars(double side, Random& random, std::vector<Solid>& street) {
  for (double x = -kStreetEnd; x < kStreetEnd; x += random.Uniform(5.6, 9)) {
    if (random.Uniform() < 0.35) continue;
    const double y = side * random.Uniform(6.2, 6.8);
    const double yaw = random.Uniform(-0.008, 0.008);
    const double length = random.Uniform(3.8, 4.7);
    Solid body = Box(x, y, 0.25, {length, 1.75, 0.65}, yaw);
    Solid cabin = Box(x - 0.2, y, 0.9, {2.2, 1.5, 0.55}, yaw);
    body.reflectivity = cabin.reflectivity = random.Uniform(0.1, 0.8);
    body.roughness = cabin.roughness = 0.01;
    cabin.transparency = 0.25;  // glass
    street.push_back(body);
    street.push_back(cabin);
  }
}

void AddTreesAndPoles(double side, Random& random, std::vector<Solid>& street) {
  for (double x = -kStreetEnd; x < kStreetEnd; x += random.Uniform(7, 14)) {
    const double y = side * random.Uniform(8.4, 9.6);
    if (random.Uniform() < 0.4) {
      const double radius = random.Uniform(0.06, 0.12);
      Solid pole = Cylinder(x, y, radius, random.Uniform(4, 8));
      pole.reflectivity = 0.7;
      street.push_back(pole);
      continue;
    }
    const double height = random.Uniform(2.2, 3.2);
    Solid trunk = Cylinder(x, y, random.Uniform(0.12, 0.25), height);
    trunk.roughness = 0.02;
    trunk.reflectivity = 0.25;
    street.push_back(trunk);
    for (int i = 0; i < 4; ++i) {
      const double crown_x = x + random.Uniform(-0.8, 0.8);
      const double crown_y = y + random.Uniform(-0.8, 0.8);
      const double crown_z = height + random.Uniform(0.4, 2.2);
      Solid crown = Sphere(crown_x, crown_y, crown_z, random.Uniform(0.7, 1.4));
      crown.roughness = 0.25;
      crown.transparency = 0.3;
      crown.reflectivity = 0.35;
      street.push_back(crown);
    }
  }
}

// The nearer positive root of a ray's quadratic a t^2 + 2 b t + c = 0.
double EnterQuadric(double a, double b, double c) {
  const double discriminant = b * b - a * c;
  if (!(a > 0) || discriminant < 0) return kMiss;
  const double t = (-b - std::sqrt(discriminant)) / a;
  return t > 0 ? t : kMiss;
}

// Slab method in the box's own frame.
double EnterBox(const Solid& box, const std::array<double, 3>& from,
                const std::array<double, 3>& direction) {
  const auto turned = [&](const std::array<double, 3>& v) -> std::array<double, 3> {
    return {v[0] * box.cos_yaw + v[1] * box.sin_yaw, v[1] * box.cos_yaw - v[0] * box.sin_yaw, v[2]};
  };
  const std::array<double, 3> origin = turned(from);
  const std::array<double, 3> d = turned(direction);
  double enter = 0;
  double leave = kMiss;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (d[axis] == 0) {
      if (std::abs(origin[axis]) > box.half[axis]) return kMiss;
      continue;
    }
    double near = (-box.half[axis] - origin[axis]) / d[axis];
    double far = (box.half[axis] - origin[axis]) / d[axis];
    if (near > far) std::swap(near, far);
    if (near > enter) enter = near;
    if (far < leave) leave = far;
  }
  return enter > 0 && enter <= leave ? enter : kMiss;
}

}  // namespace

std::vector<Solid> MakeStreet(uint64_t seed) {
  Random random(seed);
  std::vector<Solid> street;
  for (const double side : {-1.0, 1.0}) {
    AddBuildings(side, random, street);
    AddHedges(side, random, street);
    AddCars(side, random, street);
    AddTreesAndPoles(side, random, street);
  }
  return street;
}

double FootprintRadius(const Solid& solid) {
  if (solid.shape != Solid::Shape::kBox) return solid.half[0];
  return std::sqrt(solid.half[0] * solid.half[0] + solid.half[1] * solid.half[1]);
}

double Intersect(const Solid& solid, const std::array<double, 3>& origin,
                 const std::array<double, 3>& direction) {
  const std::array<double, 3> from = {origin[0] - solid.centre[0], origin[1] - solid.centre[1],
                                      origin[2] - solid.centre[2]};
  if (solid.shape == Solid::Shape::kBox) return EnterBox(solid, from, direction);
  const double flat_a = direction[0] * direction[0] + direction[1] * direction[1];
  const double flat_b = from[0] * direction[0] + from[1] * direction[1];
  const double flat_c = from[0] * from[0] + from[1] * from[1] - solid.half[0] * solid.half[0];
  if (solid.shape == Solid::Shape::kSphere) {
    return EnterQuadric(1, flat_b + from[2] * direction[2], flat_c + from[2] * from[2]);
  }
  // Open cylinder: its top is never the first thing seen from a car's roof.
  const double t = EnterQuadric(flat_a, flat_b, flat_c);
  return std::abs(from[2] + t * direction[2]) <= solid.half[2] ? t : kMiss;
}

}  // namespace voxconv::io_internal
