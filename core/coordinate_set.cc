// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/coordinate_set.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::string Describe(const Coordinate& c) {
  return absl::StrCat("(", c.b, ", ", c.x, ", ", c.y, ", ", c.z, ")");
}

absl::Status CheckRow(int64_t row, const Coordinate& c, const Int3& tensor_stride) {
  if (c.b < 0 || c.b > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: row ", row, " has batch ", c.b, "; allowed are 0..", kMaxBatch));
  }
  const Int3 p = c.position();
  for (int axis = 0; axis < 3; ++axis) {
    if (!InRange(p[axis])) {
      return absl::OutOfRangeError(
          absl::StrCat("coordinates: row ", row, " has ", std::string(1, kAxisNames[axis]), " = ",
                       p[axis], "; allowed are ", kMinCoordinate, "..", kMaxCoordinate));
    }
    if (p[axis] % tensor_stride[axis] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "coordinates: row ", row, " has ", std::string(1, kAxisNames[axis]), " = ", p[axis],
          "; it must be a multiple of the tensor stride ", tensor_stride[axis]));
    }
  }
  return absl::OkStatus();
}

absl::Status Duplicates(size_t row, const Coordinate& c, int64_t first) {
  return absl::InvalidArgumentError(absl::StrCat("coordinates: row ", row, " ", Describe(c),
                                                 " duplicates row ", first,
                                                 "; rows must be unique"));
}

// The cells of `num_batches` boxes, or `limit` + 1 if they are more than `limit`.
uint64_t CellsOf(const Box& box, int32_t num_batches, uint64_t limit) {
  auto cells = static_cast<uint64_t>(num_batches);
  for (int axis = 0; axis < 3; ++axis) {
    const auto edge = static_cast<uint64_t>(int64_t{box.hi[axis]} - box.lo[axis] + 1);
    if (cells > limit / edge) return limit + 1;
    cells *= edge;
  }
  return cells;
}

// With one bit for each of the `cells` cells of the boxes.
absl::Status CheckUniqueInBoxes(absl::Span<const Coordinate> rows, const Box& box, uint64_t cells) {
  const auto edge = [&](int axis) { return int64_t{box.hi[axis]} - box.lo[axis] + 1; };
  std::vector<bool> taken(cells);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Coordinate& c = rows[i];
    const int64_t plane = c.b * edge(0) + (c.x - box.lo.x);
    const int64_t cell = (plane * edge(1) + (c.y - box.lo.y)) * edge(2) + (c.z - box.lo.z);
    if (taken[cell]) return Duplicates(i, c, std::find(rows.begin(), rows.end(), c) - rows.begin());
    taken[cell] = true;
  }
  return absl::OkStatus();
}

absl::Status CheckUnique(absl::Span<const Coordinate> rows, const Box& box, int32_t num_batches) {
  // Up to here the bits are smaller than a hash table of the rows, and faster to look up.
  constexpr uint64_t kMostCellsPerRow = 128;
  const uint64_t limit = kMostCellsPerRow * rows.size();
  const uint64_t cells = CellsOf(box, num_batches, limit);
  if (cells <= limit) return CheckUniqueInBoxes(rows, box, cells);
  absl::flat_hash_map<uint64_t, int64_t> first_row;
  first_row.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [it, inserted] = first_row.try_emplace(PackKey(rows[i]), i);
    if (!inserted) return Duplicates(i, rows[i], it->second);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CoordinateSetPtr> CoordinateSet::Create(absl::Span<const Coordinate> rows,
                                                       const Int3& tensor_stride,
                                                       const ExecutionContext& context) {
  for (int axis = 0; axis < 3; ++axis) {
    if (tensor_stride[axis] < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor stride ", ToString(tensor_stride), ": must be at least 1"));
    }
  }
  if (rows.size() > static_cast<size_t>(INT32_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: ", rows.size(), " rows; at most ", INT32_MAX, " are allowed"));
  }
  Box bounds;
  if (!rows.empty()) bounds = {rows[0].position(), rows[0].position()};
  int32_t num_batches = 0;
  bool ascending = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    VOXCONV_RETURN_IF_ERROR(CheckRow(i, rows[i], tensor_stride));
    const Int3 p = rows[i].position();
    for (int axis = 0; axis < 3; ++axis) {
      bounds.lo[axis] = std::min(bounds.lo[axis], p[axis]);
      bounds.hi[axis] = std::max(bounds.hi[axis], p[axis]);
    }
    num_batches = std::max(num_batches, rows[i].b + 1);
    if (i > 0 && !(rows[i - 1] < rows[i])) ascending = false;
  }
  if (!ascending) {
    try {
      VOXCONV_RETURN_IF_ERROR(CheckUnique(rows, bounds, num_batches));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "coordinates: out of memory to look for duplicates among ", rows.size(), " rows"));
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> copy, CopyToBackend(rows, context));
  return Adopt(std::move(copy), tensor_stride, bounds, num_batches, ascending);
}

CoordinateSetPtr CoordinateSet::Adopt(Array<Coordinate> rows, const Int3& tensor_stride,
                                      const Box& bounds, int32_t num_batches, bool sorted) {
  std::shared_ptr<CoordinateSet> set(new CoordinateSet);
  const bool empty = rows.size() == 0;
  set->rows_ = std::move(rows);
  set->tensor_stride_ = tensor_stride;
  set->bounds_ = empty ? Box{} : bounds;
  set->num_batches_ = num_batches;
  set->sorted_ = sorted;
  set->id_ = NextId();
  return set;
}

bool CoordinateSet::StaysInRange(absl::Span<const Int3> offsets) const {
  for (const Int3& d : offsets) {
    for (int axis = 0; axis < 3; ++axis) {
      if (!InRange(int64_t{bounds_.lo[axis]} + d[axis]) ||
          !InRange(int64_t{bounds_.hi[axis]} + d[axis])) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace voxconv
