// SPDX-License-Identifier: Apache-2.0
// H-CNN's hash2col. This header holds what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_
#define VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

inline constexpr char kHash2colName[] = "hash2col";

PluginDescription DescribeHash2col();

// The columns of all outputs have the shape [N_out, K * C_in]. The dataflow assembles and
// multiplies them in blocks of `block_rows` output rows, which take less memory.
class Hash2colPlan final : public DataflowPlan {
 public:
  // Books the columns of one block. A column has a part for every offset, whether the output has a
  // pair under it or not, so that N_out * K rows of C_in channels are multiplied. work() does not
  // count launches. If the map's pairs are not counted, work() counts neither the pairs nor the
  // features read for them.
  Hash2colPlan(const KernelMap& map, const ConvShape& shape, int64_t block_rows);

  // K * C_in: the elements of one output's receptive field.
  int64_t column_size() const { return column_size_; }
  int64_t block_rows() const { return block_rows_; }
  int64_t blocks() const { return blocks_; }
  int columns_slot() const { return columns_slot_; }  // [block_rows, K * C_in]

  // Counts one launch for each block.
  void CountLaunches() { work_.launches = blocks_; }

 private:
  int64_t column_size_;
  int64_t block_rows_;
  int64_t blocks_;
  int columns_slot_ = -1;
};

class Hash2col : public Dataflow {
 public:
  // `default_mib` limits the columns if the option leaves the limit to the backend.
  Hash2col(Options options, int64_t default_mib);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  // Plans as many rows for a block as the limit allows. kResourceExhausted if one column exceeds
  // the limit.
  absl::StatusOr<std::unique_ptr<Hash2colPlan>> PlanBlocks(const KernelMap& map,
                                                           const ConvShape& shape) const;

 private:
  Options options_;
  int64_t limit_;  // bytes of the columns
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_
