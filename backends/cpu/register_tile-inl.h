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

// A register tile is kMaxRows x kPanelVectors vectors. Its accumulators, one row of weights and
// one broadcast input must fit the 16 (32) vector registers, and be at least as many as
// multiply-adds are in flight (8 on current cores).
constexpr int kPanelVectors = 2;
#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMaxRows = 8;
#else
constexpr int kMaxRows = 6;
#endif

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(Tag())); }
HWY_INLINE int64_t PanelWidth() { return kPanelVectors * Lanes(); }

// The width, in elements, of a packed panel that holds `columns` columns.
HWY_INLINE int64_t PackedWidth(int64_t columns) {
  return columns > Lanes() ? PanelWidth() : Lanes();
}

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

// sum[r] += the sum over c < depth of from[r][c * step] times row c of the packed panel `w`. Each
// element of `sum` is one chain of multiply-adds in ascending c.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyAddPanel(const float* const (&from)[kRows], int64_t step,
                                 const float* HWY_RESTRICT w, int64_t depth,
                                 Vec (&sum)[kRows][kVectors]) {
  const Tag d;
  const int64_t lanes = Lanes();
  for (int64_t c = 0, at = 0; c < depth; ++c, at += step) {
    Vec weight[kVectors];
    for (int v = 0; v < kVectors; ++v) weight[v] = hn::Load(d, w + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = hn::Set(d, from[r][at]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, weight[v], sum[r][v]);
    }
    w += kVectors * lanes;
  }
}

// Stores the first `columns` elements of a row of a tile, or adds them to what is there.
template <int kVectors>
HWY_INLINE void StoreRow(const Vec (&sum)[kVectors], int64_t columns, bool accumulate,
                         float* HWY_RESTRICT to) {
  const Tag d;
  const int64_t lanes = Lanes();
  if (columns == kVectors * lanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec old = accumulate ? hn::LoadU(d, to + v * lanes) : hn::Zero(d);
      hn::StoreU(hn::Add(old, sum[v]), d, to + v * lanes);
    }
    return;
  }
  HWY_ALIGN float padded[kVectors * HWY_MAX_BYTES / sizeof(float)] = {};
  for (int v = 0; v < kVectors; ++v) hn::Store(sum[v], d, padded + v * lanes);
  for (int64_t j = 0; j < columns; ++j) to[j] = (accumulate ? to[j] : 0.0f) + padded[j];
}

// Cuts `rows` into tiles of nearly equal height, so that none is left with so few rows that it
// waits for the latency of its multiply-adds. Calls `tile.template Run<height>(first)` for each.
template <typename Tile>
HWY_INLINE void ForTiles(int64_t rows, const Tile& tile) {
  const int64_t tiles = CeilDiv(rows, kMaxRows);
  const int64_t height = rows / tiles;
  const int64_t taller = rows % tiles;
  const auto run = [&](int64_t tile_height, int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += tile_height) {
      switch (tile_height) {
        case 1:
          tile.template Run<1>(first);
          break;
        case 2:
          tile.template Run<2>(first);
          break;
        case 3:
          tile.template Run<3>(first);
          break;
        case 4:
          tile.template Run<4>(first);
          break;
        case 5:
          tile.template Run<5>(first);
          break;
        case 6:  // NOLINT(bugprone-branch-clone): where tiles have at most 6 rows
          tile.template Run<6>(first);
          break;
        case 7:
          tile.template Run<HWY_MIN(7, kMaxRows)>(first);
          break;
        default:
          tile.template Run<kMaxRows>(first);
      }
    }
  };
  run(height + 1, 0, taller * (height + 1));
  run(height, taller * (height + 1), rows);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace voxconv
HWY_AFTER_NAMESPACE();

#endif  // NOLINT: the guard toggles
