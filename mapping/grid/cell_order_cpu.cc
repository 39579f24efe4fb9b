// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/cell_order_cpu.h"

#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

constexpr int64_t kPage = 4096;

// How many pages of an array the cells of `inputs` lie in.
absl::StatusOr<int64_t> CountPages(const CellOrder& order, const CoordinateSet& inputs,
                                   const CellArray& array, const CellTermsCpu& terms,
                                   const ExecutionContext& context) {
  const CellTermsCpu::Shifted cell_of(terms, Int3{});
  const Coordinate* rows = inputs.rows().data();
  const auto page_of = [&](int64_t row) {
    return cell_of(rows[row]) / array.cells * array.bytes / kPage;
  };
  // A bit a page is faster than sorting, up to 256 GiB.
  constexpr int64_t kMostBits = int64_t{1} << 26;
  const int64_t all = CeilDiv(order.num_cells() / array.cells * array.bytes, kPage);
  if (all <= kMostBits) {
    constexpr int64_t kWord = 64;
    VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> seen,
                             AllocateArray<uint64_t>(CeilDiv(all, kWord), context));
    std::fill_n(seen.data(), seen.size(), 0u);
    for (int64_t row = 0; row < inputs.size(); ++row) {
      const int64_t page = page_of(row);
      seen.data()[page / kWord] |= uint64_t{1} << (page % kWord);
    }
    int64_t pages = 0;
    for (int64_t i = 0; i < seen.size(); ++i) pages += absl::popcount(seen.data()[i]);
    return pages;
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> seen, AllocateArray<int64_t>(inputs.size(), context));
  for (int64_t row = 0; row < inputs.size(); ++row) seen.data()[row] = page_of(row);
  std::sort(seen.data(), seen.data() + seen.size());
  return std::unique(seen.data(), seen.data() + seen.size()) - seen.data();
}

int64_t BytesOf(const CellOrder& order, const CellArray& array) {
  return order.num_cells() / array.cells * array.bytes;
}

}  // namespace

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

absl::StatusOr<GridPages> ReserveCells(const CellOrder& order, const CoordinateSet& inputs,
                                       absl::Span<const CellArray> arrays, int64_t extra_bytes,
                                       int64_t limit_mib, absl::string_view storage,
                                       const ExecutionContext& context) {
  constexpr int64_t kMib = 1 << 20;
  constexpr int64_t kAddressSpaceMib = int64_t{1} << 26;  // of 47 bits, some is taken
  // All arrays over the cells of the coarsest one.
  CellArray whole{0, 1};
  for (const CellArray& array : arrays) whole.cells = std::max(whole.cells, array.cells);
  for (const CellArray& array : arrays) whole.bytes += array.bytes * (whole.cells / array.cells);
  const auto check = [&](int64_t limit) {
    return order.CheckLimit(whole.bytes, whole.cells, extra_bytes, limit, storage);
  };
  if (!check(kAddressSpaceMib).ok()) return check(limit_mib);
  VOXCONV_ASSIGN_OR_RETURN(const auto terms, CellTermsCpu::OfRows(order, inputs, context));
  std::vector<int64_t> written;
  GridPages grid;
  for (const CellArray& array : arrays) {
    VOXCONV_ASSIGN_OR_RETURN(const int64_t pages, CountPages(order, inputs, array, terms, context));
    written.push_back(std::min(pages * kPage, BytesOf(order, array)));
    grid.bytes += written.back();
  }
  if (const int64_t mib = CeilDiv(grid.bytes + extra_bytes, kMib); mib > limit_mib) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "grid: storage=", storage, " needs ", mib, " MiB, for the pages that ", inputs.size(),
        " voxels lie in; memory_limit_mib=", limit_mib, " allows less"));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    absl::StatusOr<Buffer> pages =
        AsCpu(context).ReservePages(BytesOf(order, arrays[i]), written[i]);
    if (!pages.ok()) {
      return absl::Status(pages.status().code(), absl::StrCat("grid: ", pages.status().message()));
    }
    grid.arrays.push_back(*std::move(pages));
  }
  return grid;
}

CellTermsCpu::Shifted::Shifted(const CellTermsCpu& terms, const Int3& offset)
    : batch_(terms.batch_.data()) {
  for (int axis = 0; axis < 3; ++axis) {
    axis_[axis] = terms.axis_[axis].data();
    shift_[axis] = int64_t{offset[axis]} - terms.first_[axis];
  }
}

}  // namespace voxconv
