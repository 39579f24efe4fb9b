// SPDX-License-Identifier: Apache-2.0
// The register tile of the CPU's matrix products. sgemm.cc multiplies rows that lie one after the
// other, indirect_gemm.cc rows that lie anywhere. Highway includes this file once for each
// instruction set, hence the guard.
// clang-format off
#if defined(VOXCONV_BACKENDS_CPU_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXCONV_BACKENDS_CPU_REGISTER_TILE_INL_H_
#undef VOXCONV_BACKENDS_CPU_REGISTER_TILE_INL_H_
#else
#define VOXCONV_BACKENDS_CPU_REGISTER_TILE_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "voxconv/core/integer.h"

HWY_BEFORE_NAMESPACE();
namespace voxconv {
namespace HWY_NAMESPACE {
namespace {  // NOLINT(google-build-namespaces): only .cc files of backends/cpu include it

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// A register tile is rows x vectors. Its accumulators, one row of weights and one broadcast input
// must fit the 16 (32) vector registers, and be at least as many as multiply-adds are in flight (8
// on current cores). Wider tiles load less for each multiply-add.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int kPanelVectors = 4;
constexpr int kMaxRows[] = {0, 12, 12, 8, 6};  // of tiles of 1 to 4 vectors
#elif HWY_ARCH_ARM
constexpr int kPanelVectors = 2;
constexpr int kMaxRows[] = {0, 8, 8};
#else
constexpr int kPanelVectors = 2;
constexpr int kMaxRows[] = {0, 6, 6};
#endif

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(Tag())); }
HWY_INLINE int64_t PanelWidth() { return kPanelVectors * Lanes(); }

// The width, in elements, of a packed panel that holds `columns` columns.
HWY_INLINE int64_t PackedWidth(int64_t columns) { return CeilDiv(columns, Lanes()) * Lanes(); }

// Copies [depth, columns] of `from`, whose rows are `row_stride` elements apart, to a panel of
// PackedWidth(columns), padded with zeros.
HWY_INLINE void PackPanel(const float* from, int64_t row_stride, int64_t depth, int64_t columns,
                          float* HWY_RESTRICT packed) {
  const int64_t width = PackedWidth(columns);
  for (int64_t c = 0; c < depth; ++c, packed += width) {
    std::memcpy(packed, from + c * row_stride, columns * sizeof(float));
    std::fill(packed + columns, packed + width, 0.0f);
  }
}

// sum[r] += from[r][at] times one row of a packed panel. GCC keeps the sums in registers only if
// loops over rows and vectors, which are 16 at most, are unrolled early.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyAddStep(const float* const (&from)[kRows], int64_t at,
                                const float* HWY_RESTRICT w, Vec (&sum)[kRows][kVectors]) {
  const Tag d;
  Vec weight[kVectors];
  HWY_UNROLL(16)
  for (int v = 0; v < kVectors; ++v) weight[v] = hn::Load(d, w + v * Lanes());
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    const Vec x = hn::Set(d, from[r][at]);
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, weight[v], sum[r][v]);
  }
}

// sum[r] += the sum over c < depth of from[r][at + c * step] times row c of the packed panel `w`.
// Each element of `sum` is one chain of multiply-adds in ascending c.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyAddPanel(const float* const (&from)[kRows], int64_t at, int64_t step,
                                 const float* HWY_RESTRICT w, int64_t depth,
                                 Vec (&sum)[kRows][kVectors]) {
  const int64_t width = kVectors * Lanes();
  int64_t c = 0;
  for (; c + 2 <= depth; c += 2, at += 2 * step, w += 2 * width) {
    MultiplyAddStep(from, at, w, sum);
    MultiplyAddStep(from, at + step, w + width, sum);
  }
  if (c < depth) MultiplyAddStep(from, at, w, sum);
}

template <int kRows, int kVectors>
HWY_INLINE void ClearSums(Vec (&sum)[kRows][kVectors]) {
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(Tag());
  }
}

// Loads the first `columns` elements of a row of a tile. The elements behind them are zero.
template <int kVectors>
HWY_INLINE void LoadRow(const float* HWY_RESTRICT from, int64_t columns, Vec (&sum)[kVectors]) {
  const Tag d;
  if (columns == kVectors * Lanes()) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::LoadU(d, from + v * Lanes());
    return;
  }
  HWY_ALIGN float padded[kVectors * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, columns * sizeof(float));
  HWY_UNROLL(16)
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Load(d, padded + v * Lanes());
}

// sum += the first `columns` elements of a row of a tile.
template <int kVectors>
HWY_INLINE void AddRow(const float* HWY_RESTRICT from, int64_t columns, Vec (&sum)[kVectors]) {
  Vec old[kVectors];
  LoadRow<kVectors>(from, columns, old);
  HWY_UNROLL(16)
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Add(old[v], sum[v]);
}

// Stores the first `columns` elements of a row of a tile.
template <int kVectors>
HWY_INLINE void StoreRow(const Vec (&sum)[kVectors], int64_t columns, float* HWY_RESTRICT to) {
  const Tag d;
  if (columns == kVectors * Lanes()) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, to + v * Lanes());
    return;
  }
  HWY_ALIGN float padded[kVectors * HWY_MAX_BYTES / sizeof(float)];
  HWY_UNROLL(16)
  for (int v = 0; v < kVectors; ++v) hn::Store(sum[v], d, padded + v * Lanes());
  std::memcpy(to, padded, columns * sizeof(float));
}

// Calls tile.template Run<height>(first). 1 <= height <= kMost.
template <int kMost, typename Tile>
HWY_INLINE void RunHeight(const Tile& tile, int64_t height, int64_t first) {
  if constexpr (kMost > 1) {
    if (height < kMost) return RunHeight<kMost - 1>(tile, height, first);
  }
  tile.template Run<kMost>(first);
}

// Cuts `rows` into tiles of nearly equal height, so that none is left with so few rows that it
// waits for the latency of its multiply-adds. Calls `tile.template Run<height>(first)` for each.
template <int kVectors, typename Tile>
HWY_INLINE void ForTiles(int64_t rows, const Tile& tile) {
  const int64_t tiles = CeilDiv(rows, kMaxRows[kVectors]);
  const int64_t height = rows / tiles;
  const int64_t split = rows % tiles * (height + 1);  // tiles of one row more come first
  for (int64_t first = 0; first < split; first += height + 1) {
    RunHeight<kMaxRows[kVectors]>(tile, height + 1, first);
  }
  for (int64_t first = split; first < rows; first += height) {
    RunHeight<kMaxRows[kVectors]>(tile, height, first);
  }
}

// Calls body.template Run<vectors>() for the vectors that hold `columns`, 1 to kMost.
template <int kMost, typename Body>
HWY_INLINE void ForVectors(int64_t columns, const Body& body) {
  if constexpr (kMost > 1) {
    if (columns <= (kMost - 1) * Lanes()) return ForVectors<kMost - 1>(columns, body);
  }
  body.template Run<kMost>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace voxconv
HWY_AFTER_NAMESPACE();

#endif  // NOLINT: the guard toggles
