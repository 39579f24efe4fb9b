// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/sgemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "hwy/cache_control.h"
#include "voxconv/backends/cpu/highway_targets.h"
#include "voxconv/backends/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "voxconv/backends/cpu/sgemm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"
#include "voxconv/backends/cpu/register_tile-inl.h"

#ifndef VOXCONV_BACKENDS_CPU_SGEMM_CC_ONCE_
#define VOXCONV_BACKENDS_CPU_SGEMM_CC_ONCE_
namespace voxconv {
namespace {

// The operands of one product. Element (i, c) of A is a[i * row_step + c * depth_step].
struct DenseOperands {
  int64_t m, n, k;
  const float* a;
  int64_t row_step, depth_step;
  const float* b;
  float* c;
  ProductMode mode;
};

// The rows of A that meet a packed panel of B fit the second-level cache.
constexpr int64_t kRowsPerPanel = 512;

}  // namespace
}  // namespace voxconv
#endif  // VOXCONV_BACKENDS_CPU_SGEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace voxconv {
namespace HWY_NAMESPACE {
namespace {

// A packed panel of B of this depth fits the first-level cache.
constexpr int64_t kDepthPerPanel = 512 / kPanelVectors;

// Rows and depths of A that meet one packed panel of B.
template <int kVectors>
struct DenseTiles {
  const DenseOperands& operands;
  const float* packed;  // [depth, kVectors * lanes]
  int64_t first_row;
  int64_t first_depth, depth;
  int64_t first_column, columns;

  template <int kRows>
  void Run(int64_t tile_row) const {
    const float* from[kRows];
    float* to[kRows];
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + tile_row + r;
      from[r] = operands.a + row * operands.row_step + first_depth * operands.depth_step;
      to[r] = operands.c + row * operands.n + first_column;
      hwy::Prefetch(to[r]);
    }
    Vec sum[kRows][kVectors];
    ClearSums(sum);
    if (operands.depth_step == 1) {  // as a constant, it saves a register
      MultiplyAddPanel(from, 0, 1, packed, depth, sum);
    } else {
      MultiplyAddPanel(from, 0, operands.depth_step, packed, depth, sum);
    }
    if (first_depth > 0 || operands.mode == ProductMode::kAccumulate) {
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) AddRow<kVectors>(to[r], columns, sum[r]);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) StoreRow<kVectors>(sum[r], columns, to[r]);
  }
};

// What meets one packed panel of B: rows and depths of A.
struct PanelOfB {
  const DenseOperands& operands;
  const float* packed;
  int64_t row, rows;
  int64_t depth, depths;
  int64_t column, columns;

  template <int kVectors>
  void Run() const {
    ForTiles<kVectors>(rows,
                       DenseTiles<kVectors>{operands, packed, row, depth, depths, column, columns});
  }
};

void MultiplyImpl(const DenseOperands& operands) {
  HWY_ALIGN float packed[kDepthPerPanel * kPanelVectors * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t row = 0; row < operands.m; row += kRowsPerPanel) {
    const int64_t rows = std::min(kRowsPerPanel, operands.m - row);
    for (int64_t depth = 0; depth < operands.k; depth += kDepthPerPanel) {
      const int64_t depths = std::min(kDepthPerPanel, operands.k - depth);
      for (int64_t column = 0; column < operands.n; column += PanelWidth()) {
        const int64_t columns = std::min(PanelWidth(), operands.n - column);
        PackPanel(operands.b + depth * operands.n + column, operands.n, depths, columns, packed);
        ForVectors<kPanelVectors>(
            columns, PanelOfB{operands, packed, row, rows, depth, depths, column, columns});
      }
    }
  }
}

const char* TargetImpl() { return hwy::TargetName(HWY_TARGET); }

double MultiplyAddsImpl(int64_t count) {
  constexpr int kChains = 12;  // as many as hide the latency, and no more than registers
  const Tag d;
  Vec sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  // Operands that the compiler does not know, and sums that stay normal numbers.
  const Vec x = hn::Set(d, count > 0 ? 1e-3f : 2e-3f), y = hn::Set(d, count > 1 ? 1e-3f : 2e-3f);
  const int64_t rounds = CeilDiv(count, kChains);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(x, y, sum[i]);
  }
  for (int i = 1; i < kChains; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  const double used = hn::GetLane(sum[0]) > -1.0f ? 1.0 : 0.0;  // so that it is computed
  return used * 2.0 * static_cast<double>(rounds * kChains * Lanes());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace voxconv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxconv {
namespace {

HWY_EXPORT(MultiplyImpl);
HWY_EXPORT(TargetImpl);
HWY_EXPORT(MultiplyAddsImpl);

// Rows of C that a task computes: enough to amortise the packing of B.
constexpr int64_t kRowsPerTask = kRowsPerPanel;
// Fewer where A is transposed: C is then small, and k is large.
constexpr int64_t kTransposedRowsPerTask = 64;

void Multiply(const DenseOperands& operands) {
  if (operands.m == 0 || operands.n == 0) return;
  if (operands.k == 0) {
    if (operands.mode == ProductMode::kOverwrite) {
      std::fill_n(operands.c, operands.m * operands.n, 0.0f);
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(MultiplyImpl)(operands);
}

// Whether no element has all bits of `exponent` set, those of an infinity or NaN.
template <typename Float, typename Bits>
bool NoneHasExponent(const ExecutionContext& context, const Float* values, int64_t size,
                     Bits exponent) {
  constexpr int64_t kPerTask = 1 << 16;
  std::atomic<bool> finite = true;
  ParallelRanges(context, size, kPerTask, [&](int64_t begin, int64_t end) {
    bool here = true;
    for (int64_t i = begin; i < end; ++i) {
      here &= (std::bit_cast<Bits>(values[i]) & exponent) != exponent;
    }
    if (!here) finite = false;
  });
  return finite;
}

}  // namespace

void SgemmSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b, ProductMode mode,
                 float* c) {
  Multiply({m, n, k, a, /*row_step=*/k, /*depth_step=*/1, b, c, mode});
}

void SgemmTransposedSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                           ProductMode mode, float* c) {
  Multiply({m, n, k, a, /*row_step=*/1, /*depth_step=*/m, b, c, mode});
}

void Sgemm(const ExecutionContext& context, int64_t m, int64_t n, int64_t k, const float* a,
           const float* b, ProductMode mode, float* c) {
  ParallelRanges(context, m, kRowsPerTask, [&](int64_t begin, int64_t end) {
    SgemmSerial(end - begin, n, k, a + begin * k, b, mode, c + begin * n);
  });
}

void SgemmTransposed(const ExecutionContext& context, int64_t m, int64_t n, int64_t k,
                     const float* a, const float* b, ProductMode mode, float* c) {
  ParallelRanges(context, m, kTransposedRowsPerTask, [&](int64_t begin, int64_t end) {
    Multiply(
        {end - begin, n, k, a + begin, /*row_step=*/1, /*depth_step=*/m, b, c + begin * n, mode});
  });
}

bool AllFinite(const ExecutionContext& context, const float* values, int64_t size) {
  return NoneHasExponent(context, values, size, uint32_t{0x7f800000});
}

bool AllFiniteBf16(const ExecutionContext& context, const uint16_t* bits, int64_t size) {
  return NoneHasExponent(context, bits, size, uint16_t{0x7f80});
}

const char* SgemmTarget() { return HWY_DYNAMIC_DISPATCH(TargetImpl)(); }

double RunMultiplyAdds(int64_t count) { return HWY_DYNAMIC_DISPATCH(MultiplyAddsImpl)(count); }

}  // namespace voxconv
#endif  // HWY_ONCE
