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

// Rows [first, first + kRows) of a panel that is kVectors wide.
template <int kRows, int kVectors>
void ComputeTile(const Panel& panel, int64_t first) {
  const IndirectGemmOperands& operands = *panel.operands;
  const int64_t c_in = operands.c_in;

  float* to[kRows];
  for (int r = 0; r < kRows; ++r) {
    to[r] = operands.output + panel.rows.out[first + r] * operands.c_out + panel.first_column;
    // They are wanted only after the products, which hide the wait.
    hwy::Prefetch(to[r]);
  }
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(Tag());
  }
  const int64_t ahead = std::min<int64_t>(kRows, panel.rows.count - first - kRows);
  for (size_t s = 0; s < panel.steps.size(); ++s) {
    const float* HWY_RESTRICT w = panel.weights + panel.steps[s] * panel.matrix_size;
    const int32_t* in = panel.rows.in + static_cast<int64_t>(s) * panel.rows.in_stride + first;
    const float* from[kRows];
    for (int r = 0; r < kRows; ++r) {
      from[r] = in[r] < 0 ? operands.zero_row : operands.input + in[r] * c_in;
    }
    // Inputs lie anywhere, so the hardware does not foresee the rows of the next tile.
    if (panel.first_column == 0) {
      for (int64_t r = 0; r < ahead; ++r) {
        if (in[kRows + r] >= 0) PrefetchInputRow(operands, in[kRows + r]);
      }
    }
    MultiplyAddPanel<kRows, kVectors>(from, /*step=*/1, w, c_in, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    StoreRow<kVectors>(sum[r], panel.columns, panel.accumulate, to[r]);
  }
}

template <int kVectors>
struct PanelTiles {
  const Panel& panel;
  template <int kRows>
  void Run(int64_t first) const {
    ComputeTile<kRows, kVectors>(panel, first);
  }
};

void IndirectGemmImpl(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows, ProductMode mode) {
  if (rows.count == 0) return;
  const int64_t width = PanelWidth();
  Panel panel{&operands, steps, rows, mode == ProductMode::kAccumulate};
  panel.matrix_size = operands.c_in * CeilDiv(operands.c_out, Lanes()) * Lanes();
  // Panels outermost: one stays in the first-level cache while all rows pass by.
  for (int64_t column = 0; column < operands.c_out; column += width) {
    panel.weights = operands.packed_weights + column * operands.c_in;
    panel.first_column = column;
    panel.columns = std::min(width, operands.c_out - column);
    if (panel.columns > Lanes()) {
      ForTiles(rows.count, PanelTiles<kPanelVectors>{panel});
    } else {
      ForTiles(rows.count, PanelTiles<1>{panel});
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
