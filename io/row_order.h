// SPDX-License-Identifier: Apache-2.0
// The order in which the voxels of an input become rows.
#ifndef VOXCONV_IO_ROW_ORDER_H_
#define VOXCONV_IO_ROW_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/core/types.h"

namespace voxconv {

enum class RowOrder {
  // As the input gives them. Voxels of points come in the order of their first points. What is
  // voxels already keeps the order of the file or of the scene.
  kScan,
  kSorted,    // ascending (b, x, y, z)
  kShuffled,  // a permutation of all rows, drawn with a seed
  kMorton,    // by b, then along the Z-order curve of (x, y, z), with z fastest
};

absl::string_view ToString(RowOrder order);
// Reads what ToString writes: "scan", "sorted", "shuffled" or "morton". kInvalidArgument gives the
// text and what is allowed.
absl::StatusOr<RowOrder> ParseRowOrder(absl::string_view text);

// The rows of `coords` in this order: the row that comes first, then the second, and so on; [N].
// Coordinates must be distinct and fit into keys (core/coordinate_key.h). `seed` is that of
// kShuffled; the same seed and N give the same permutation on every platform. O(N log N).
std::vector<int64_t> OrderRows(absl::Span<const Coordinate> coords, RowOrder order, uint64_t seed);

}  // namespace voxconv

#endif  // VOXCONV_IO_ROW_ORDER_H_
