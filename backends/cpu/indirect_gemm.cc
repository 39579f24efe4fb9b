// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/indirect_gemm.h"

#include <algorithm>

#include "voxconv/backends/cpu/highway_targets.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/integer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "voxconv/backends/cpu/indirect_gemm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"
#include "voxconv/backends/cpu/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace voxconv {
namespace HWY_NAMESPACE {
namespace {

// One panel of output columns of a whole product.
struct Panel {
  const IndirectGemmOperands* operands;
  absl::Span<const int32_t> steps;
  IndirectGemmRows rows;
  bool accumulate;
  const float* weights;  // of matrix 0
  int64_t matrix_size;
  int64_t first_column;
  int64_t columns;
};

// Where the input rows of a tile are, or those of the tile behind it.
template <int kRows>
HWY_INLINE void FindRows(const Panel& panel, const int32_t* in, const float* (&rows)[kRows]) {
  const IndirectGemmOperands& operands = *panel.operands;
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    rows[r] = in[r] < 0 ? operands.zero_row : operands.input + in[r] * operands.c_in;
  }
}

// The input rows of the tile behind [first, first + kRows), which lie anywhere, so that the
// hardware does not foresee them. They may be those of the caller's next product.
template <int kRows>
HWY_INLINE const int32_t* NextInputs(const IndirectGemmRows& rows, const int32_t* in,
                                     int64_t first) {
  if (first + kRows < rows.count) {
    return in + std::min<int64_t>(kRows, rows.count - kRows - first);
  }
  return rows.next_count >= kRows ? rows.next_in : in;
}

// sum += the rows of one step times its panel of weights. Asks for the rows of the next tile
// meanwhile, line by line, because a core waits for few lines at a time.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyStep(const Panel& panel, size_t step, int64_t first,
                             Vec (&sum)[kRows][kVectors]) {
  constexpr int64_t kCacheLineFloats = 16;
  const int64_t c_in = panel.operands->c_in;
  const int32_t* in = panel.rows.in + static_cast<int64_t>(step) * panel.rows.in_stride + first;
  const float* from[kRows];
  const float* next[kRows];
  FindRows(panel, in, from);
  FindRows(panel, NextInputs<kRows>(panel.rows, in, first), next);
  const float* w = panel.weights + panel.steps[step] * panel.matrix_size;
  for (int64_t c = 0; c < c_in; c += kCacheLineFloats) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) hwy::Prefetch(next[r] + c);
    const int64_t depth = std::min(kCacheLineFloats, c_in - c);
    MultiplyAddPanel(from, c, /*step=*/1, w, depth, sum);
    w += depth * kVectors * Lanes();
  }
}

// Rows [first, first + kRows) of a panel that is kVectors wide.
template <int kRows, int kVectors>
void ComputeTile(const Panel& panel, int64_t first) {
  const IndirectGemmOperands& operands = *panel.operands;
  float* to[kRows];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    to[r] = operands.output + panel.rows.out[first + r] * operands.c_out + panel.first_column;
  }
  Vec sum[kRows][kVectors];
  if (panel.accumulate) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) LoadRow<kVectors>(to[r], panel.columns, sum[r]);
  } else {
    ClearSums(sum);
  }
  for (size_t s = 0; s < panel.steps.size(); ++s) MultiplyStep(panel, s, first, sum);
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) StoreRow<kVectors>(sum[r], panel.columns, to[r]);
}

template <int kVectors>
struct PanelTiles {
  const Panel& panel;
  template <int kRows>
  void Run(int64_t first) const {
    ComputeTile<kRows, kVectors>(panel, first);
  }
};

struct PanelRows {
  const Panel& panel;
  template <int kVectors>
  void Run() const {
    ForTiles<kVectors>(panel.rows.count, PanelTiles<kVectors>{panel});
  }
};

// Part `begin` to `end` of the rows.
IndirectGemmRows PartOf(const IndirectGemmRows& rows, int64_t begin, int64_t end) {
  IndirectGemmRows part = rows;
  part.count = end - begin;
  part.in += begin;
  part.out += begin;
  if (end < rows.count) {
    part.next_in = rows.in + end;
    part.next_count = rows.count - end;
  }
  return part;
}

void IndirectGemmImpl(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows, ProductMode mode) {
  // The rows of a part stay in the second-level cache for all panels, and a panel of weights in the
  // first-level cache while they pass by.
  constexpr int64_t kRowsPerPart = 256;
  const int64_t width = PanelWidth();
  Panel panel{&operands, steps};
  panel.accumulate = mode == ProductMode::kAccumulate;
  panel.matrix_size = operands.c_in * CeilDiv(operands.c_out, Lanes()) * Lanes();
  for (int64_t begin = 0; begin < rows.count; begin += kRowsPerPart) {
    panel.rows = PartOf(rows, begin, std::min(rows.count, begin + kRowsPerPart));
    for (int64_t column = 0; column < operands.c_out; column += width) {
      panel.weights = operands.packed_weights + column * operands.c_in;
      panel.first_column = column;
      panel.columns = std::min(width, operands.c_out - column);
      ForVectors<kPanelVectors>(panel.columns, PanelRows{panel});
    }
  }
}

int64_t PackedWeightSizeImpl(int64_t c_in, int64_t c_out) {
  return c_in * CeilDiv(c_out, Lanes()) * Lanes();
}

void PackMatrix(const float* weights, int64_t c_in, int64_t c_out, float* packed) {
  for (int64_t column = 0; column < c_out; column += PanelWidth()) {
    const int64_t columns = std::min(PanelWidth(), c_out - column);
    PackPanel(weights + column, c_out, c_in, columns, packed);
    packed += c_in * PackedWidth(columns);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace voxconv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxconv {
namespace {

HWY_EXPORT(IndirectGemmImpl);
HWY_EXPORT(PackedWeightSizeImpl);
HWY_EXPORT(PackMatrix);

}  // namespace

void IndirectGemm(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                  const IndirectGemmRows& rows, ProductMode mode) {
  HWY_DYNAMIC_DISPATCH(IndirectGemmImpl)(operands, steps, rows, mode);
}

int64_t PackedWeightSize(int64_t c_in, int64_t c_out) {
  return HWY_DYNAMIC_DISPATCH(PackedWeightSizeImpl)(c_in, c_out);
}

void PackWeights(const float* weights, int64_t matrices, int64_t c_in, int64_t c_out, float* packed,
                 const ExecutionContext& context) {
  const int64_t packed_size = PackedWeightSize(c_in, c_out);
  ParallelRanges(context, matrices, 1, [&](int64_t k, int64_t) {
    HWY_DYNAMIC_DISPATCH(PackMatrix)
    (weights + k * c_in * c_out, c_in, c_out, packed + k * packed_size);
  });
}

}  // namespace voxconv
#endif  // HWY_ONCE
