// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/cell_order.h"

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

constexpr int64_t kMiB = 1 << 20;

}  // namespace

CellOrder::CellOrder(const CoordinateSet& inputs, const Int3& inner_bits, const Int3& outer_bits)
    : num_batches_(inputs.size() == 0 ? 0 : inputs.num_batches()) {
  const Box& bounds = inputs.bounds();
  int64_t inner = 1;
  int64_t outer = int64_t{1} << (inner_bits.x + inner_bits.y + inner_bits.z);
  int64_t rest = outer << (outer_bits.x + outer_bits.y + outer_bits.z);
  for (int axis = 2; axis >= 0; --axis) {
    const auto stride = static_cast<uint32_t>(inputs.tensor_stride()[axis]);
    const int stride_bits = absl::has_single_bit(stride) ? absl::countr_zero(stride) : -1;
    axes_[axis] = {bounds.lo[axis],  bounds.hi[axis], stride, stride_bits, inner_bits[axis],
                   outer_bits[axis], inner,           outer,  rest};
    const int brick_bits = inner_bits[axis] + outer_bits[axis];
    const int64_t extent = (int64_t{bounds.hi[axis]} - bounds.lo[axis]) / stride;
    inner <<= inner_bits[axis];
    outer <<= outer_bits[axis];
    // At most 2^18 cells an axis, whole bricks included: 2^54 altogether.
    rest *= (extent >> brick_bits) + 1;
  }
  sample_cells_ = rest;
}

absl::Status CellOrder::CheckLimit(int64_t bytes, int64_t cells, int64_t extra_bytes,
                                   int64_t limit_mib, absl::string_view storage) const {
  // By sample and in MiB, as bytes of all samples might not fit 64 bits.
  const int64_t sample_bytes = sample_cells_ / cells * bytes;
  const int64_t needed_mib = sample_bytes / kMiB * num_batches_ +
                             CeilDiv(sample_bytes % kMiB * num_batches_ + extra_bytes, kMiB);
  if (needed_mib <= limit_mib) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("grid: storage=", storage, " needs ", needed_mib, " MiB for ", num_batches_,
                   num_batches_ == 1 ? " sample" : " samples", " of ", sample_cells_,
                   " cells; memory_limit_mib=", limit_mib, " allows less"));
}

}  // namespace voxconv
