// The voxels of a tensor.
#ifndef VOXCONV_CORE_COORDINATE_SET_H_
#define VOXCONV_CORE_COORDINATE_SET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/types.h"

namespace voxconv {

// Immutable, unique (batch, x, y, z) rows in units of the finest voxel, all multiples of the
// tensor stride, in the memory of a backend. Says nothing about lookup: that is a mapping's
// business. Shared by every tensor that lies on it.
class CoordinateSet {
 public:
  // Checks and copies `rows` (host). Refused, naming row, axis, value and what is allowed: a batch
  // outside 0..511, a coordinate outside -131072..131071 or not a multiple of `tensor_stride`, a
  // duplicate row; also a tensor stride below 1 and 2^31 rows or more. O(N).
  static absl::StatusOr<std::shared_ptr<const CoordinateSet>> Create(
      absl::Span<const Coordinate> rows, const Int3& tensor_stride,
      const ExecutionContext& context);

  // For plugins whose rows are right by construction: `bounds` must enclose them (any box if
  // empty), `num_batches` exceed every batch, `sorted` tell whether they ascend by packed key.
  static std::shared_ptr<const CoordinateSet> Adopt(Array<Coordinate> rows,
                                                    const Int3& tensor_stride, const Box& bounds,
                                                    int32_t num_batches, bool sorted);

  int64_t size() const { return rows_.size(); }
  const Array<Coordinate>& rows() const { return rows_; }
  const Int3& tensor_stride() const { return tensor_stride_; }
  // Encloses all rows, over all batches; {0..0} where the set is empty.
  const Box& bounds() const { return bounds_; }
  // Largest batch + 1; samples in between may be empty.
  int32_t num_batches() const { return num_batches_; }
  // Rows ascend by packed key.
  bool sorted() const { return sorted_; }
  // Differs between any two sets of a process.
  uint64_t id() const { return id_; }

  // Whether row + d is in range on every axis for every row and every d: then keys may be added
  // (core/coordinate_key.h) without a check.
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
