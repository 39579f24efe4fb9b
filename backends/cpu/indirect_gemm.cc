// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/indirect_gemm.h"

#include <algorithm>
#include <cstring>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/integer.h"

// Scalable vectors cannot be members of the accumulators' arrays; SSSE3 and the AVX-512 subsets
// would only repeat the code of their neighbours.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "voxconv/backends/cpu/indirect_gemm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxconv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// A register tile is kMaxRows x kPanelVectors vectors. Its accumulators, one row of weights and
// one broadcast input must fit the 16 (32) vector registers, and be at least as many as
// multiply-adds are in flight (8 on current cores).
constexpr int kPanelVectors = 2;
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM
constexpr int kMaxRows = 8;
#else
constexpr int kMaxRows = 6;
#endif

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(Tag())); }
int64_t PanelWidth() { return kPanelVectors * Lanes(); }

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

template <int kVectors>
HWY_INLINE void StoreRow(const Panel& panel, const Vec (&sum)[kVectors], float* HWY_RESTRICT to) {
  const Tag d;
  const int64_t lanes = Lanes();
  if (panel.columns == kVectors * lanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec old = panel.accumulate ? hn::LoadU(d, to + v * lanes) : hn::Zero(d);
      hn::StoreU(hn::Add(old, sum[v]), d, to + v * lanes);
    }
    return;
  }
  HWY_ALIGN float padded[kVectors * HWY_MAX_BYTES / sizeof(float)] = {};
  for (int v = 0; v < kVectors; ++v) hn::Store(sum[v], d, padded + v * lanes);
  for (int64_t j = 0; j < panel.columns; ++j) {
    to[j] = (panel.accumulate ? to[j] : 0.0f) + padded[j];
  }
}

// Rows [first, first + kRows) of a panel that is kVectors wide.
template <int kRows, int kVectors>
void ComputeTile(const Panel& panel, int64_t first) {
  const Tag d;
  const int64_t lanes = Lanes();
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
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
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
    for (int64_t c = 0; c < c_in; ++c) {
      Vec weight[kVectors];
      for (int v = 0; v < kVectors; ++v) weight[v] = hn::Load(d, w + v * lanes);
      for (int r = 0; r < kRows; ++r) {
        const Vec x = hn::Set(d, from[r][c]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, weight[v], sum[r][v]);
      }
      w += kVectors * lanes;
    }
  }
  for (int r = 0; r < kRows; ++r) StoreRow<kVectors>(panel, sum[r], to[r]);
}

using TileFunction = void (*)(const Panel&, int64_t);

template <int kVectors>
TileFunction TileOfRows(int64_t rows) {
  switch (rows) {
    case 1:
      return ComputeTile<1, kVectors>;
    case 2:
      return ComputeTile<2, kVectors>;
    case 3:
      return ComputeTile<3, kVectors>;
    case 4:
      return ComputeTile<4, kVectors>;
    case 5:
      return ComputeTile<5, kVectors>;
    case 6:
      return ComputeTile<6, kVectors>;
    case 7:
      return ComputeTile<HWY_MIN(7, kMaxRows), kVectors>;
    default:
      return ComputeTile<kMaxRows, kVectors>;
  }
}

// Cuts the rows into tiles of nearly equal height, so that none is left with so few rows that it
// waits for the latency of its multiply-adds.
template <int kVectors>
void ComputePanel(const Panel& panel) {
  const int64_t tiles = CeilDiv(panel.rows.count, kMaxRows);
  const int64_t height = panel.rows.count / tiles;
  const int64_t taller = panel.rows.count % tiles;
  int64_t first = 0;
  if (taller > 0) {
    const TileFunction tile = TileOfRows<kVectors>(height + 1);
    for (; first < taller * (height + 1); first += height + 1) tile(panel, first);
  }
  const TileFunction tile = TileOfRows<kVectors>(height);
  for (; first < panel.rows.count; first += height) tile(panel, first);
}

void IndirectGemmImpl(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows, IndirectGemmMode mode) {
  if (rows.count == 0) return;
  const int64_t width = PanelWidth();
  Panel panel{&operands, steps, rows, mode == IndirectGemmMode::kAccumulate};
  panel.matrix_size = operands.c_in * CeilDiv(operands.c_out, Lanes()) * Lanes();
  // Panels outermost: one stays in the first-level cache while all rows pass by.
  for (int64_t column = 0; column < operands.c_out; column += width) {
    panel.weights = operands.packed_weights + column * operands.c_in;
    panel.first_column = column;
    panel.columns = std::min(width, operands.c_out - column);
    if (panel.columns > Lanes()) {
      ComputePanel<kPanelVectors>(panel);
    } else {
      ComputePanel<1>(panel);
    }
  }
}

int64_t PackedWeightSizeImpl(int64_t c_in, int64_t c_out) {
  return c_in * CeilDiv(c_out, Lanes()) * Lanes();
}

void PackMatrix(const float* weights, int64_t c_in, int64_t c_out, float* packed) {
  for (int64_t column = 0; column < c_out; column += PanelWidth()) {
    const int64_t columns = std::min(PanelWidth(), c_out - column);
    const int64_t width = columns > Lanes() ? PanelWidth() : Lanes();
    for (int64_t c = 0; c < c_in; ++c, packed += width) {
      std::memcpy(packed, weights + c * c_out + column, columns * sizeof(float));
      std::fill(packed + columns, packed + width, 0.0f);
    }
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
                  const IndirectGemmRows& rows, IndirectGemmMode mode) {
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
