// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kKeysPerTask = 65536;

bool IsFirst(const uint64_t* keys, int64_t i) { return i == 0 || keys[i] != keys[i - 1]; }

void Extend(Box& box, const Int3& lo, const Int3& hi) {
  for (int axis = 0; axis < 3; ++axis) {
    box.lo[axis] = std::min(box.lo[axis], lo[axis]);
    box.hi[axis] = std::max(box.hi[axis], hi[axis]);
  }
}

}  // namespace

absl::StatusOr<CoordinateSetPtr> UniqueRowsCpu(const CandidateRule& rule, Array<uint64_t> keys,
                                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(RadixSort(keys, context));
  const uint64_t* sorted = keys.data();
  std::vector<int64_t> first((keys.size() + kKeysPerTask - 1) / kKeysPerTask);
  ParallelRanges(context, keys.size(), kKeysPerTask, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += IsFirst(sorted, i);
    first[begin / kKeysPerTask] = count;
  });
  int64_t size = 0;
  for (int64_t& count : first) size += std::exchange(count, size);
  if (size > INT32_MAX) {
    return absl::ResourceExhaustedError(
        absl::StrCat("output coordinates: ", size, " rows; at most ", INT32_MAX, " are allowed"));
  }

  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> rows, AllocateArray<Coordinate>(size, context));
  const CompactKeyFormat format = rule.key_format();
  constexpr Int3 kHighest{INT32_MAX, INT32_MAX, INT32_MAX};
  constexpr Int3 kLowest{INT32_MIN, INT32_MIN, INT32_MIN};
  std::vector<Box> boxes(first.size(), Box{kHighest, kLowest});
  ParallelRanges(context, keys.size(), kKeysPerTask, [&](int64_t begin, int64_t end) {
    Coordinate* next = rows.data() + first[begin / kKeysPerTask];
    Box box{kHighest, kLowest};
    for (int64_t i = begin; i < end; ++i) {
      if (!IsFirst(sorted, i)) continue;
      *next = format.Unpack(sorted[i]);
      Extend(box, next->position(), next->position());
      ++next;
    }
    boxes[begin / kKeysPerTask] = box;
  });
  Box bounds{kHighest, kLowest};
  for (const Box& box : boxes) Extend(bounds, box.lo, box.hi);
  // Output bounds may have dropped the last samples altogether.
  const int32_t num_batches = size == 0 ? 0 : rows.data()[size - 1].b + 1;
  return CoordinateSet::Adopt(std::move(rows), rule.output_tensor_stride(), bounds, num_batches,
                              /*sorted=*/true);
}

}  // namespace voxconv
