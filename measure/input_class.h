// SPDX-License-Identifier: Apache-2.0
// Classes of inputs for which tuning finds the same plan.
#ifndef VOXCONV_MEASURE_INPUT_CLASS_H_
#define VOXCONV_MEASURE_INPUT_CLASS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "voxconv/core/types.h"

namespace voxconv::measure {

// Which candidate is fastest depends on the number of voxels and on the number of their neighbours.
// A class has both as powers of two: floor(log2(voxels)) and floor(log2(pairs / voxels)). The pairs
// are those of a submanifold convolution with kernel 3, so that a voxel alone has 1 neighbour,
// itself. Both are 0 for an input without voxels.
struct InputClass {
  int log2_voxels = 0;
  int log2_neighbours = 0;
  friend bool operator==(const InputClass&, const InputClass&) = default;
};

struct InputDensity {
  int64_t voxels = 0;
  double neighbours = 0;  // pairs / voxels
};

// Counts voxels and neighbours of `rows`, on the host. Rows must be distinct and in the coordinate
// range. O(N log N).
InputDensity MeasureDensity(absl::Span<const Coordinate> rows);
InputClass Classify(const InputDensity& density);

// "2^16 voxels with 2^1 neighbours".
std::string ToString(const InputClass& input_class);
// How many powers of two the classes are apart. 0 for equal classes.
int Distance(const InputClass& a, const InputClass& b);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_INPUT_CLASS_H_
