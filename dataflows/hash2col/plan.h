// What planning decides for one map and shape; the same on every backend.
#ifndef VOXCONV_DATAFLOWS_HASH2COL_PLAN_H_
#define VOXCONV_DATAFLOWS_HASH2COL_PLAN_H_

#include <cstdint>

#include "core/dataflow.h"

namespace voxconv {

// The columns of all outputs would be [N_out, K * C_in]; they are assembled and multiplied in
// blocks of `block_rows` output rows.
class Hash2colPlan final : public DataflowPlan {
 public:
  Hash2colPlan(const ConvShape& shape, int num_offsets, int64_t block_rows)
      : shape_(shape), column_size_(num_offsets * shape.c_in), block_rows_(block_rows) {
    columns_slot_ = booking_.Book(block_rows * column_size_ * SizeOf(shape.dtype));
  }

  const ConvShape& shape() const { return shape_; }
  // K * C_in: elements of one output's receptive field.
  int64_t column_size() const { return column_size_; }
  int64_t block_rows() const { return block_rows_; }
  int columns_slot() const { return columns_slot_; }

 private:
  ConvShape shape_;
  int64_t column_size_;
  int64_t block_rows_;
  int columns_slot_ = -1;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_PLAN_H_
