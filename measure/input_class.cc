// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/input_class.h"

#include <cmath>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv::measure {

InputDensity MeasureDensity(absl::Span<const Coordinate> rows) {
  absl::flat_hash_set<uint64_t> keys;
  keys.reserve(rows.size());
  for (const Coordinate& c : rows) keys.insert(PackKey(c));
  int64_t pairs = 0;
  // A neighbour's neighbour is the voxel itself, so half of the 26 offsets are enough.
  for (const Coordinate& c : rows) {
    for (int offset = 14; offset < 27; ++offset) {
      const Int3 p{c.x + offset / 9 - 1, c.y + offset / 3 % 3 - 1, c.z + offset % 3 - 1};
      if (InRange(p) && keys.contains(PackKey({c.b, p.x, p.y, p.z}))) pairs += 2;
    }
  }
  const auto voxels = static_cast<int64_t>(rows.size());
  if (voxels == 0) return {};
  return {voxels, 1 + static_cast<double>(pairs) / static_cast<double>(voxels)};
}

InputClass Classify(const InputDensity& density) {
  if (density.voxels == 0) return {};
  return {static_cast<int>(std::floor(std::log2(density.voxels))),
          static_cast<int>(std::floor(std::log2(density.neighbours)))};
}

std::string ToString(const InputClass& input_class) {
  return absl::StrCat("2^", input_class.log2_voxels, " voxels with 2^", input_class.log2_neighbours,
                      " neighbours");
}

int Distance(const InputClass& a, const InputClass& b) {
  return std::abs(a.log2_voxels - b.log2_voxels) + std::abs(a.log2_neighbours - b.log2_neighbours);
}

}  // namespace voxconv::measure
