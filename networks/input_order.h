// SPDX-License-Identifier: Apache-2.0
// The input's voxels in the order in which a network runs on them (RunConfig::reorder_input).
#ifndef VOXCONV_NETWORKS_INPUT_ORDER_H_
#define VOXCONV_NETWORKS_INPUT_ORDER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/voxel_ops.h"

namespace voxconv {

// Sorts the voxels of one input, and moves rows of features there and back. The functions queue
// their work on the context's stream and do not synchronise it.
class InputOrder {
 public:
  // Sorts `given`, unless it is the set that was sorted last. Rows that are sorted already stay.
  // Records Stage::kConvert. kResourceExhausted if the memory does not suffice.
  absl::Status Sort(const CoordinateSetPtr& given, const ExecutionContext& context);
  void Clear() { *this = InputOrder(); }

  const CoordinateSetPtr& given() const { return given_; }
  // The set on which the network runs; given() itself if it is sorted.
  const CoordinateSetPtr& set() const { return given_->sorted() ? given_ : sorted_.set; }
  bool moves_rows() const { return given_ != nullptr && !given_->sorted(); }

  // A new tensor: rows of features on given(), in the order of set(); and the other way round. Only
  // if rows move.
  absl::StatusOr<Tensor> ToSorted(const ConstTensorView& x, const ExecutionContext& context) const {
    return Move(sorted_.to_sorted(), x, context);
  }
  absl::StatusOr<Tensor> ToGiven(const ConstTensorView& x, const ExecutionContext& context) const {
    return Move(sorted_.to_given(), x, context);
  }

 private:
  static absl::StatusOr<Tensor> Move(const PointMapView& rows, const ConstTensorView& x,
                                     const ExecutionContext& context);

  CoordinateSetPtr given_;
  SortedVoxels sorted_;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_INPUT_ORDER_H_
