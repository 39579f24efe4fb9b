// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/input_class.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv::measure {
namespace {

// How many of the voxels have one at the step `d` from them. The keys ascend, and so do those that
// are looked for: one walk finds all.
int64_t CountAtStep(absl::Span<const uint64_t> keys, const Int3& d) {
  const uint64_t delta = KeyDelta(d);
  int64_t found = 0;
  size_t at = 0;
  for (const uint64_t key : keys) {
    const Coordinate c = UnpackKey(key);
    if (!InRange(Int3{c.x + d.x, c.y + d.y, c.z + d.z})) continue;
    const uint64_t wanted = key + delta;
    while (at < keys.size() && keys[at] < wanted) ++at;
    if (at == keys.size()) break;
    if (keys[at] == wanted) ++found;
  }
  return found;
}

}  // namespace

InputDensity MeasureDensity(absl::Span<const Coordinate> rows) {
  if (rows.empty()) return {};
  std::vector<uint64_t> keys;
  keys.reserve(rows.size());
  for (const Coordinate& c : rows) keys.push_back(PackKey(c));
  if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
  int64_t pairs = 0;
  // A neighbour's neighbour is the voxel itself, so half of the 26 offsets are enough.
  for (int offset = 14; offset < 27; ++offset) {
    pairs += 2 * CountAtStep(keys, {offset / 9 - 1, offset / 3 % 3 - 1, offset % 3 - 1});
  }
  const auto voxels = static_cast<int64_t>(rows.size());
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
