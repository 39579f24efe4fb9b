// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/hash2col/hash2col.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/integer.h"

namespace voxconv {

PluginDescription DescribeHash2col() {
  PluginDescription description{
      .name = kHash2colName,
      .summary = "assembles every output's receptive field as a column; one large matmul",
      .source = "H-CNN, Algorithm 1 and Equation 3",
      .extra_variants = {"workspace_mib=1"}};
  description.options.Int("workspace_mib", 0, 0, 1 << 20,
                          "limit of the columns in MiB; outputs are done in blocks that fit; 0: 64 "
                          "on the CPU, 1024 on CUDA");
  return description;
}

Hash2colPlan::Hash2colPlan(const KernelMap& map, const ConvShape& shape, int64_t block_rows)
    : column_size_(map.num_offsets() * shape.c_in),
      block_rows_(block_rows),
      blocks_(CeilDiv(map.num_outputs(), block_rows)) {
  const int64_t element = SizeOf(shape.types.input);
  const int64_t rows = map.num_outputs();
  const int64_t column_bytes = rows * column_size_ * element;
  const int64_t table_bytes = rows * map.num_offsets() * static_cast<int64_t>(sizeof(int32_t));
  columns_slot_ = booking_.Book(block_rows * column_size_ * element);
  work_.true_pairs = map.counts_known() ? map.num_pairs() : 0;
  work_.padded_pairs = rows * map.num_offsets();
  work_.bytes_read = work_.true_pairs * shape.c_in * element + table_bytes + column_bytes +
                     blocks_ * column_size_ * shape.c_out * element;
  work_.bytes_written = column_bytes + rows * shape.c_out * element;
}

Hash2col::Hash2col(Options options, int64_t default_mib) : options_(std::move(options)) {
  const int64_t given = options_.GetInt("workspace_mib");
  limit_ = (given > 0 ? given : default_mib) << 20;
}

MapNeed Hash2col::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kNeighbourTable};
}

absl::StatusOr<std::unique_ptr<Hash2colPlan>> Hash2col::PlanBlocks(const KernelMap& map,
                                                                   const ConvShape& shape) const {
  // A map without offsets has columns of no size; its outputs are zero.
  const int64_t row_bytes =
      std::max<int64_t>(1, map.num_offsets() * shape.c_in * SizeOf(shape.types.input));
  if (row_bytes > limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kHash2colName, ": workspace_mib=", limit_ >> 20, ": one column of ",
                     map.num_offsets(), " offsets x ", shape.c_in, " channels takes ", row_bytes,
                     " bytes; at least ", CeilDiv(row_bytes, int64_t{1} << 20), " is allowed"));
  }
  const int64_t block_rows = std::clamp<int64_t>(map.num_outputs(), 1, limit_ / row_bytes);
  return std::make_unique<Hash2colPlan>(map, shape, block_rows);
}

}  // namespace voxconv
