// SPDX-License-Identifier: Apache-2.0
// The voxels of a tensor.
#ifndef VOXCONV_CORE_COORDINATE_SET_H_
#define VOXCONV_CORE_COORDINATE_SET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/types.h"

namespace voxconv {

// N unique rows (batch, x, y, z) in the memory of one backend, which must outlive the set. x, y and
// z are in units of the finest voxel, and multiples of the tensor stride. Immutable. All tensors on
// the same voxels share one set. A set cannot look up a voxel; mappings do that.
class CoordinateSet {
 public:
  // Checks `rows`, which are on the host, and copies them to the backend. `rows` may be gone when
  // this returns. Queued on the context's stream. O(N). The message of an error gives the row, the
  // axis, the value and what is allowed. kOutOfRange for a coordinate outside -131072..131071.
  // kInvalidArgument for a batch outside 0..511, a coordinate that is not a multiple of
  // `tensor_stride`, a row that occurs twice, a tensor stride below 1, and 2^31 rows or more.
  // kResourceExhausted if the memory does not suffice.
  static absl::StatusOr<std::shared_ptr<const CoordinateSet>> Create(
      absl::Span<const Coordinate> rows, const Int3& tensor_stride,
      const ExecutionContext& context);

  // Takes over `rows` without a check, for plugins whose rows are right by construction. `bounds`
  // must enclose all rows. `num_batches` must exceed every batch. `sorted` must be true only if the
  // rows ascend by packed key. Queues no work. O(1).
  static std::shared_ptr<const CoordinateSet> Adopt(Array<Coordinate> rows,
                                                    const Int3& tensor_stride, const Box& bounds,
                                                    int32_t num_batches, bool sorted);

  int64_t size() const { return rows_.size(); }
  const Array<Coordinate>& rows() const { return rows_; }
  const Int3& tensor_stride() const { return tensor_stride_; }
  // A box that encloses all rows of all batches. {0..0} if the set is empty.
  const Box& bounds() const { return bounds_; }
  // Greater than every batch. Samples may be empty.
  int32_t num_batches() const { return num_batches_; }
  // True only if rows ascend by packed key (core/coordinate_key.h).
  bool sorted() const { return sorted_; }
  // No two sets of a process have the same id.
  uint64_t id() const { return id_; }

  // Whether row + d is in the coordinate range on every axis, for every row in bounds() and every
  // offset d. Keys may then be added without a check (core/coordinate_key.h). O(offsets).
  bool StaysInRange(absl::Span<const Int3> offsets) const;

 private:
  CoordinateSet() = default;

  Array<Coordinate> rows_;
  Int3 tensor_stride_{1, 1, 1};
  Box bounds_;
  int32_t num_batches_ = 0;
  bool sorted_ = false;
  uint64_t id_ = 0;
};

using CoordinateSetPtr = std::shared_ptr<const CoordinateSet>;

}  // namespace voxconv

#endif  // VOXCONV_CORE_COORDINATE_SET_H_
