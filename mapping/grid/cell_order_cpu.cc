#include "mapping/grid/cell_order_cpu.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/coordinate_key.h"

namespace voxconv {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

CellOrderCpu::CellOrderCpu(const CoordinateSet& inputs, const Int3& inner_bits,
                           const Int3& outer_bits)
    : bounds_(inputs.bounds()),
      tensor_stride_(inputs.tensor_stride()),
      num_batches_(inputs.size() == 0 ? 0 : inputs.num_batches()) {
  int64_t inner = 1;
  int64_t outer = int64_t{1} << (inner_bits.x + inner_bits.y + inner_bits.z);
  int64_t rest = outer << (outer_bits.x + outer_bits.y + outer_bits.z);
  for (int axis = 2; axis >= 0; --axis) {
    axes_[axis] = {inner_bits[axis], outer_bits[axis], inner, outer, rest};
    const int brick_bits = inner_bits[axis] + outer_bits[axis];
    const int64_t extent = (int64_t{bounds_.hi[axis]} - bounds_.lo[axis]) / tensor_stride_[axis];
    inner <<= inner_bits[axis];
    outer <<= outer_bits[axis];
    // At most 2^18 cells an axis, whole bricks included: 2^54 altogether.
    rest *= (extent >> brick_bits) + 1;
  }
  sample_cells_ = rest;
}

absl::Status CellOrderCpu::CheckLimit(int64_t bytes, int64_t cells, int64_t extra_bytes,
                                      int64_t limit_mib, absl::string_view storage) const {
  // By sample and in MiB, as bytes of all samples might not fit 64 bits.
  const int64_t sample_bytes = sample_cells_ / cells * bytes;
  const int64_t needed_mib = sample_bytes / kMiB * num_batches_ +
                             CeilDivide(sample_bytes % kMiB * num_batches_ + extra_bytes, kMiB);
  if (needed_mib <= limit_mib) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("grid: storage=", storage, " needs ", needed_mib, " MiB for ", num_batches_,
                   num_batches_ == 1 ? " sample" : " samples", " of ", sample_cells_,
                   " cells; memory_limit_mib=", limit_mib, " allows less"));
}

int64_t CellOrderCpu::AxisTerm(int axis, int64_t position) const {
  if (position < bounds_.lo[axis] || position > bounds_.hi[axis]) return kNoCell;
  const int64_t distance = position - bounds_.lo[axis];
  if (distance % tensor_stride_[axis] != 0) return kNoCell;
  const int64_t cell = distance / tensor_stride_[axis];
  const auto& [inner_bits, outer_bits, inner_weight, outer_weight, rest_weight] = axes_[axis];
  const int64_t inner = cell & ((int64_t{1} << inner_bits) - 1);
  const int64_t outer = cell >> inner_bits & ((int64_t{1} << outer_bits) - 1);
  const int64_t rest = cell >> (inner_bits + outer_bits);
  return inner * inner_weight + outer * outer_weight + rest * rest_weight;
}

absl::StatusOr<CellTermsCpu> CellTermsCpu::Create(const CellOrderCpu& order, const Box& rows_bounds,
                                                  int32_t num_batches, const Int3& min_offset,
                                                  const Int3& max_offset,
                                                  const ExecutionContext& context) {
  CellTermsCpu terms;
  VOXCONV_ASSIGN_OR_RETURN(terms.batch_, AllocateArray<int64_t>(num_batches, context));
  for (int32_t b = 0; b < num_batches; ++b) terms.batch_.data()[b] = order.BatchTerm(b);
  for (int axis = 0; axis < 3; ++axis) {
    // Positions and offsets are below 2^18 in size: their sums fit int32.
    const int32_t first = rows_bounds.lo[axis] + min_offset[axis];
    const int32_t last = rows_bounds.hi[axis] + max_offset[axis];
    terms.first_[axis] = first;
    VOXCONV_ASSIGN_OR_RETURN(terms.axis_[axis],
                             AllocateArray<int64_t>(int64_t{last} - first + 1, context));
    for (int64_t i = 0; i < terms.axis_[axis].size(); ++i) {
      terms.axis_[axis].data()[i] = order.AxisTerm(axis, first + i);
    }
  }
  return terms;
}

absl::StatusOr<CellTermsCpu> CellTermsCpu::OfRows(const CellOrderCpu& order,
                                                  const CoordinateSet& set,
                                                  const ExecutionContext& context) {
  return Create(order, set.bounds(), set.num_batches(), Int3{}, Int3{}, context);
}

absl::StatusOr<CellTermsCpu> CellTermsCpu::OfProblem(const CellOrderCpu& order,
                                                     const MapProblem& problem,
                                                     const ExecutionContext& context) {
  Int3 min = problem.geometry.InputOffset(0);
  Int3 max = min;
  for (const Int3& offset : problem.geometry.input_offsets()) {
    for (int axis = 0; axis < 3; ++axis) {
      min[axis] = std::min(min[axis], offset[axis]);
      max[axis] = std::max(max[axis], offset[axis]);
    }
  }
  return Create(order, problem.outputs.bounds(), problem.outputs.num_batches(), min, max, context);
}

CellTermsCpu::Shifted::Shifted(const CellTermsCpu& terms, const Int3& offset)
    : batch_(terms.batch_.data()) {
  for (int axis = 0; axis < 3; ++axis) {
    axis_[axis] = terms.axis_[axis].data();
    shift_[axis] = int64_t{offset[axis]} - terms.first_[axis];
  }
}

}  // namespace voxconv
