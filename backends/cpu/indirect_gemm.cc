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

constexpr int64_t kCacheLineFloats = 16;

// One panel of output columns of a whole product.
struct Panel {
  const IndirectGemmOperands* operands;
  absl::Span<const int32_t> steps;
  IndirectGemmRows rows;
  bool accumulate;
  int64_t ahead;         // how many rows before its use an input row is asked for; 0: a tile
  const float* weights;  // of matrix 0
  int64_t matrix_size;
  int64_t index, panels;  // the panel's place among all of the product
  int64_t first_column;
  int64_t columns;
};

// Where the input rows of a tile are.
template <int kRows>
HWY_INLINE void FindRows(const Panel& panel, const int32_t* in, const float* (&rows)[kRows]) {
  const float* const input = panel.operands->input;
  const float* const zero_row = panel.operands->zero_row;
  const int64_t c_in = panel.operands->c_in;
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) rows[r] = in[r] < 0 ? zero_row : input + in[r] * c_in;
}

// The same of a tile behind it, whose rows are only asked for: row 0 stands for zeros.
template <int kRows>
HWY_INLINE void FindRowsAhead(const Panel& panel, const int32_t* in, const float* (&rows)[kRows]) {
  const float* const input = panel.operands->input;
  const int64_t c_in = panel.operands->c_in;
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) rows[r] = input + std::max(in[r], 0) * c_in;
}

// Where the sums of a tile are.
template <int kRows>
HWY_INLINE void FindSums(const Panel& panel, const int32_t* out, int64_t column,
                         float* (&sums)[kRows]) {
  float* const output = panel.operands->output + column;
  const int64_t c_out = panel.operands->c_out;
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) sums[r] = output + out[r] * c_out;
}

// Where the tile begins whose input rows are asked for while [first, first + kRows) is computed.
// They lie anywhere, so that the hardware does not foresee them.
template <int kRows>
HWY_INLINE int64_t TileAhead(const Panel& panel, int64_t first) {
  const int64_t ahead = panel.ahead > 0 ? panel.ahead : kRows;
  return std::min(first + ahead, panel.rows.count + panel.rows.following - kRows);
}

// The sums that the tile behind [first, first + kRows) adds to: of this panel, or of the next one,
// which begins with the first rows again.
template <int kRows>
HWY_INLINE void FindNextSums(const Panel& panel, int64_t first, float* (&sums)[kRows]) {
  const IndirectGemmRows& rows = panel.rows;
  int64_t next = first + kRows;
  int64_t column = panel.first_column;
  if (next >= rows.count && panel.panels > 1) {
    const bool last = panel.index + 1 == panel.panels;
    next = last ? next : 0;
    column = last ? 0 : column + PanelWidth();
  }
  FindSums(panel, rows.out + std::min(next, rows.count + rows.following - kRows), column, sums);
}

// Asks for line `line` of each row.
template <int kRows, typename Pointer>
HWY_INLINE void Ask(const Pointer (&rows)[kRows], int64_t line) {
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) hwy::Prefetch(rows[r] + line * kCacheLineFloats);
}

// sum += the rows of one step times its panel of weights. Asks meanwhile for inputs of a tile
// behind, of which each panel takes its share of the lines, and for the first `sum_lines` lines of
// `next_sums`. It asks line by line, because a core waits for few lines at a time.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyStep(const Panel& panel, size_t step, int64_t first,
                             float* const (&next_sums)[kRows], int64_t sum_lines,
                             Vec (&sum)[kRows][kVectors]) {
  const int64_t c_in = panel.operands->c_in;
  const int32_t* in = panel.rows.in + static_cast<int64_t>(step) * panel.rows.in_stride;
  const float* from[kRows];
  const float* ahead[kRows];
  FindRows(panel, in + first, from);
  FindRowsAhead(panel, in + TileAhead<kRows>(panel, first), ahead);
  const float* w = panel.weights + panel.steps[step] * panel.matrix_size;
  int64_t asked = panel.index;
  for (int64_t c = 0, line = 0; c < c_in; c += kCacheLineFloats, ++line) {
    if (line == asked) {
      Ask(ahead, line);
      asked += panel.panels;
    }
    if (line < sum_lines) Ask(next_sums, line);
    const int64_t depth = std::min(kCacheLineFloats, c_in - c);
    MultiplyAddPanel(from, c, /*step=*/1, w, depth, sum);
    w += depth * kVectors * Lanes();
  }
}

// Rows [first, first + kRows) of a panel that is kVectors wide.
template <int kRows, int kVectors>
void ComputeTile(const Panel& panel, int64_t first) {
  // Sums of several steps stay here so long that the wait for the next ones is nothing beside it.
  // Those of narrow panels cost less than to ask for them.
  constexpr int64_t kSumLines = kVectors * HWY_MAX_BYTES / sizeof(float) / kCacheLineFloats;
  const bool asks = kVectors == kPanelVectors && panel.steps.size() == 1;
  float* to[kRows];
  float* next_sums[kRows];
  FindSums(panel, panel.rows.out + first, panel.first_column, to);
  if constexpr (kVectors == kPanelVectors) {
    FindNextSums(panel, first, next_sums);
  } else {
    std::copy_n(to, kRows, next_sums);
  }
  Vec sum[kRows][kVectors];
  if (panel.accumulate) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) LoadRow<kVectors>(to[r], panel.columns, sum[r]);
  } else {
    ClearSums(sum);
  }
  for (size_t s = 0; s < panel.steps.size(); ++s) {
    MultiplyStep(panel, s, first, next_sums, asks ? kSumLines : 0, sum);
  }
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
  part.following += rows.count - end;
  return part;
}

// The first row of part `part` of `parts`, all of which are whole tiles of the highest panels.
int64_t PartBegin(int64_t rows, int64_t part, int64_t parts) {
  const int64_t tiles = CeilDiv(rows, kMaxRows[kPanelVectors]);
  const int64_t tile = tiles * part / parts;
  return tile * (rows / tiles) + std::min(tile, rows % tiles);
}

// One panel of columns comes after the other, for a part of the rows. Where there are several, a
// part has so few rows that they stay in the first-level cache. All panels of a part then share
// the wait for the rows of the next part. Weights come from the second-level cache, in order.
void IndirectGemmImpl(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows, ProductMode mode) {
  constexpr int64_t kRowsPerPart = 4 * kMaxRows[kPanelVectors];
  if (rows.count == 0) return;
  const int64_t width = PanelWidth();
  Panel panel{&operands, steps};
  panel.accumulate = mode == ProductMode::kAccumulate;
  panel.matrix_size = operands.c_in * CeilDiv(operands.c_out, Lanes()) * Lanes();
  panel.panels = CeilDiv(operands.c_out, width);
  const int64_t parts = panel.panels == 1 ? 1 : CeilDiv(rows.count, kRowsPerPart);
  for (int64_t part = 0; part < parts; ++part) {
    panel.rows =
        PartOf(rows, PartBegin(rows.count, part, parts), PartBegin(rows.count, part + 1, parts));
    panel.ahead = panel.panels == 1 ? 0 : panel.rows.count;
    for (panel.index = 0; panel.index < panel.panels; ++panel.index) {
      const int64_t column = panel.index * width;
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
