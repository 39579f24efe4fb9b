// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/cell_order_cpu.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "voxconv/core/integer.h"

namespace voxconv {

absl::StatusOr<CellTermsCpu> CellTermsCpu::Create(const CellOrder& order, const Box& rows_bounds,
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

absl::StatusOr<CellTermsCpu> CellTermsCpu::OfRows(const CellOrder& order, const CoordinateSet& set,
                                                  const ExecutionContext& context) {
  return Create(order, set.bounds(), set.num_batches(), Int3{}, Int3{}, context);
}

absl::StatusOr<CellTermsCpu> CellTermsCpu::OfProblem(const CellOrder& order,
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

absl::Status CheckPages(const CellOrder& order, const CoordinateSet& inputs,
                        absl::Span<const CellArray> arrays, int64_t extra_bytes, int64_t limit_mib,
                        absl::string_view storage, const ExecutionContext& context) {
  constexpr int64_t kMib = 1 << 20, kPage = 4096;
  constexpr int64_t kAddressSpaceMib = int64_t{1} << 26;  // of 47 bits, some is taken
  // All arrays over the cells of the coarsest one.
  CellArray whole{0, 1};
  for (const CellArray& array : arrays) whole.cells = std::max(whole.cells, array.cells);
  for (const CellArray& array : arrays) whole.bytes += array.bytes * (whole.cells / array.cells);
  const auto check = [&](int64_t limit) {
    return order.CheckLimit(whole.bytes, whole.cells, extra_bytes, limit, storage);
  };
  const absl::Status fits = check(limit_mib);
  if (fits.ok() || !check(kAddressSpaceMib).ok()) return fits;
  const int64_t voxels = inputs.size();
  const auto mib = [&](int64_t pages) { return CeilDiv(pages * kPage + extra_bytes, kMib); };
  if (mib(voxels * static_cast<int64_t>(arrays.size())) <= limit_mib) return absl::OkStatus();

  VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfRows(order, inputs, context));
  const CellTermsCpu::Shifted cell_of(terms, Int3{});
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> touched, AllocateArray<int64_t>(voxels, context));
  int64_t pages = 0;
  for (const CellArray& array : arrays) {
    int64_t* begin = touched.data();
    int64_t* end = begin + voxels;
    for (int64_t i = 0; i < voxels; ++i) {
      begin[i] = cell_of(inputs.rows().data()[i]) / array.cells * array.bytes / kPage;
    }
    std::sort(begin, end);
    pages += std::unique(begin, end) - begin;
  }
  if (mib(pages) <= limit_mib) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("grid: storage=", storage, " needs ", mib(pages), " MiB, for the pages that ",
                   voxels, " voxels lie in; memory_limit_mib=", limit_mib, " allows less"));
}

CellTermsCpu::Shifted::Shifted(const CellTermsCpu& terms, const Int3& offset)
    : batch_(terms.batch_.data()) {
  for (int axis = 0; axis < 3; ++axis) {
    axis_[axis] = terms.axis_[axis].data();
    shift_[axis] = int64_t{offset[axis]} - terms.first_[axis];
  }
}

}  // namespace voxconv
