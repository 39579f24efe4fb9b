// Which inputs are alike for tuning.
#ifndef VOXCONV_MEASURE_INPUT_CLASS_H_
#define VOXCONV_MEASURE_INPUT_CLASS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/types.h"

namespace voxconv::measure {

// The number of voxels and how many neighbours they have decide which candidate is fastest; both
// count by powers of two: floor(log2(voxels)) and floor(log2(pairs / voxels)), pairs being those of
// a submanifold convolution with kernel 3, so that a lone voxel has 1 neighbour, itself. 0 of both
// for no voxel.
struct InputClass {
  int log2_voxels = 0;
  int log2_neighbours = 0;
  friend bool operator==(const InputClass&, const InputClass&) = default;
};

struct InputDensity {
  int64_t voxels = 0;
  double neighbours = 0;  // pairs / voxels
};

// Of distinct (batch, x, y, z) rows in the coordinate range. O(N), on the host.
InputDensity MeasureDensity(absl::Span<const Coordinate> rows);
InputClass Classify(const InputDensity& density);

// "2^16 voxels with 2^1 neighbours".
std::string ToString(const InputClass& input_class);
// 0 for the same class, else how many powers of two they are apart.
int Distance(const InputClass& a, const InputClass& b);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_INPUT_CLASS_H_
