// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/bf16_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/half.h"
#include "voxconv/core/integer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define VOXCONV_HAVE_BF16_PRODUCTS 1
#else
#define VOXCONV_HAVE_BF16_PRODUCTS 0
#endif

namespace voxconv {
namespace {

constexpr int64_t kLanes = 16;    // columns of a vector of sums
constexpr int kPanelVectors = 2;  // of a register tile
constexpr int64_t kPanel = kPanelVectors * kLanes;
constexpr int64_t kPair = 2;         // input channels that one dot product multiplies
constexpr int64_t kMaxTileRows = 8;  // 16 chains of sums hide the latency of a dot product

int64_t Pairs(int64_t c_in) { return CeilDiv(c_in, kPair); }

// One matrix: panels of two vectors of columns, or one at the end. A row of a panel holds a pair of
// channels, of which each column's two weights lie side by side.
void PackMatrix(const uint16_t* weights, int64_t c_in, int64_t c_out, uint16_t* packed) {
  for (int64_t column = 0; column < c_out; column += kPanel) {
    const int64_t columns = std::min(kPanel, c_out - column);
    const int64_t width = CeilDiv(columns, kLanes) * kLanes;
    for (int64_t pair = 0; pair < Pairs(c_in); ++pair, packed += kPair * width) {
      std::fill_n(packed, kPair * width, uint16_t{0});
      for (int64_t c = pair * kPair; c < std::min(c_in, (pair + 1) * kPair); ++c) {
        for (int64_t j = 0; j < columns; ++j) {
          packed[kPair * j + c % kPair] = weights[c * c_out + column + j];
        }
      }
    }
  }
}

// sum += from [c_in] * a packed panel of `width` columns, pair by pair, the odd channel first.
void AddWidenedRow(const uint16_t* from, const uint16_t* panel, int64_t c_in, int64_t width,
                   float* sum) {
  for (int64_t c = 0; c < c_in; c += kPair, panel += kPair * width) {
    const float even = Bf16BitsToFloat(from[c]);
    const float odd = c + 1 < c_in ? Bf16BitsToFloat(from[c + 1]) : 0.0f;
    for (int64_t j = 0; j < width; ++j) {
      sum[j] += odd * Bf16BitsToFloat(panel[kPair * j + 1]);
      sum[j] += even * Bf16BitsToFloat(panel[kPair * j]);
    }
  }
}

}  // namespace

int64_t PackedBf16WeightSize(int64_t c_in, int64_t c_out) {
  return kPair * Pairs(c_in) * CeilDiv(c_out, kLanes) * kLanes;
}

void PackBf16Weights(const uint16_t* weights, int64_t matrices, int64_t c_in, int64_t c_out,
                     uint16_t* packed, const ExecutionContext& context) {
  const int64_t size = PackedBf16WeightSize(c_in, c_out);
  ParallelRanges(context, matrices, 1, [&](int64_t k, int64_t) {
    PackMatrix(weights + k * c_in * c_out, c_in, c_out, packed + k * size);
  });
}

int64_t Bf16Panels(int64_t c_out) { return CeilDiv(c_out, kPanel); }

int64_t Bf16SumWidth(int64_t c_out) { return CeilDiv(c_out, kLanes) * kLanes; }

const char* Bf16Target() { return HasBf16Products() ? "AVX512-BF16" : "widened bf16"; }

void IndirectWidenedBf16Gemm(const Bf16GemmOperands& operands, absl::Span<const int32_t> steps,
                             const IndirectGemmRows& rows) {
  const int64_t c_in = operands.c_in;
  const int64_t matrix_size = PackedBf16WeightSize(c_in, operands.c_out);
  for (int64_t column = 0; column < operands.c_out; column += kPanel) {
    const int64_t columns = std::min(kPanel, operands.c_out - column);
    const int64_t width = CeilDiv(columns, kLanes) * kLanes;
    for (int64_t i = 0; i < rows.count; ++i) {
      float sum[kPanel] = {};
      for (size_t s = 0; s < steps.size(); ++s) {
        const int32_t row = rows.in[static_cast<int64_t>(s) * rows.in_stride + i];
        const uint16_t* from = row < 0 ? operands.zero_row : operands.input + row * c_in;
        const uint16_t* w =
            operands.packed_weights + steps[s] * matrix_size + column * kPair * Pairs(c_in);
        AddWidenedRow(from, w, c_in, width, sum);
      }
      uint16_t* to = operands.output + rows.out[i] * operands.c_out + column;
      for (int64_t j = 0; j < columns; ++j) to[j] = FloatToBf16Bits(sum[j]);
    }
  }
}

void AddWidenedBf16Products(const Bf16SumOperands& operands, const Bf16Pairs& pairs, int64_t panel,
                            ProductMode mode) {
  const int64_t c_in = operands.c_in, stride = Bf16SumWidth(operands.c_out);
  const int64_t column = panel * kPanel, width = std::min(kPanel, stride - column);
  for (int64_t i = 0; i < pairs.count; ++i) {
    const uint16_t* from = operands.input + pairs.in[i] * c_in;
    const uint16_t* w = operands.packed_weights + column * kPair * Pairs(c_in);
    float* to = operands.sums + (pairs.out[i] - pairs.first_out) * stride + column;
    if (mode == ProductMode::kOverwrite) std::fill_n(to, width, 0.0f);
    AddWidenedRow(from, w, c_in, width, to);
  }
}

namespace {

void RoundWidenedBf16Sums(const float* sums, int64_t rows, int64_t c_out, uint16_t* output) {
  const int64_t stride = Bf16SumWidth(c_out);
  for (int64_t row = 0; row < rows; ++row, sums += stride, output += c_out) {
    for (int64_t c = 0; c < c_out; ++c) output[c] = FloatToBf16Bits(sums[c]);
  }
}

}  // namespace

#if VOXCONV_HAVE_BF16_PRODUCTS

bool HasBf16Products() {
  return __builtin_cpu_supports("avx512bf16") > 0 && __builtin_cpu_supports("avx512bw") > 0 &&
         __builtin_cpu_supports("avx512vl") > 0;
}

namespace {

// The functions below alone use these instructions. No inline function of a header is compiled with
// them, which the linker could then take for all callers.
#define VOXCONV_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

VOXCONV_BF16_TARGET inline __m512bh Broadcast(uint32_t pair) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair)));
}

VOXCONV_BF16_TARGET inline __m512bh LoadWeights(const uint16_t* at) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(at));
}

// sum[r] += row r's pairs times the panel `w`.
template <int kRows, int kVectors>
VOXCONV_BF16_TARGET inline void MultiplyStep(const uint16_t* const (&from)[kRows],
                                             const uint16_t* w, int64_t c_in,
                                             __m512 (&sum)[kRows][kVectors]) {
  int64_t c = 0;
  for (; c + kPair <= c_in; c += kPair, w += kPair * kLanes * kVectors) {
    __m512bh weight[kVectors];
    for (int v = 0; v < kVectors; ++v) weight[v] = LoadWeights(w + v * kPair * kLanes);
    for (int r = 0; r < kRows; ++r) {
      uint32_t pair;
      std::memcpy(&pair, from[r] + c, sizeof(pair));
      const __m512bh x = Broadcast(pair);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, weight[v]);
    }
  }
  if (c == c_in) return;
  // The element behind the row's last is another's.
  for (int r = 0; r < kRows; ++r) {
    const __m512bh x = Broadcast(from[r][c]);
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, LoadWeights(w + v * kPair * kLanes));
    }
  }
}

// One panel of output columns of a whole product.
struct Panel {
  const Bf16GemmOperands* operands;
  const int32_t* steps;
  int64_t num_steps;
  const IndirectGemmRows* rows;
  const uint16_t* weights;  // of matrix 0
  int64_t matrix_size;
  int64_t first_column;
  int64_t columns;

  template <int kRows, int kVectors>
  void Run(int64_t first) const;
};

// Rows [first, first + kRows) of a panel that is kVectors wide.
template <int kRows, int kVectors>
VOXCONV_BF16_TARGET void Panel::Run(int64_t first) const {
  const Panel& panel = *this;
  const Bf16GemmOperands& operands = *panel.operands;
  __m512 sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int64_t s = 0; s < panel.num_steps; ++s) {
    const int32_t* in = panel.rows->in + s * panel.rows->in_stride + first;
    const uint16_t* from[kRows];
    for (int r = 0; r < kRows; ++r) {
      from[r] = in[r] < 0 ? operands.zero_row : operands.input + in[r] * operands.c_in;
    }
    MultiplyStep<kRows, kVectors>(from, panel.weights + panel.steps[s] * panel.matrix_size,
                                  operands.c_in, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    uint16_t* to =
        operands.output + panel.rows->out[first + r] * operands.c_out + panel.first_column;
    for (int v = 0; v < kVectors; ++v) {
      const int64_t columns = std::min(kLanes, panel.columns - v * kLanes);
      const auto mask = static_cast<__mmask16>((1u << columns) - 1);
      const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sum[r][v]));
      _mm256_mask_storeu_epi16(to + v * kLanes, mask, bits);
    }
  }
}

// One panel of columns of the products that are added to sums.
struct SumPanel {
  const Bf16SumOperands* operands;
  const Bf16Pairs* pairs;
  const uint16_t* weights;
  float* sums;
  int64_t stride;
  bool overwrite;
  bool prefetches;

  template <int kRows, int kVectors>
  void Run(int64_t first) const;
  void PrefetchRow(int64_t row) const {
    constexpr int64_t kCacheLineElements = 32;
    const uint16_t* at = operands->input + row * operands->c_in;
    for (int64_t c = 0; c < operands->c_in; c += kCacheLineElements) __builtin_prefetch(at + c);
  }
};

template <int kRows, int kVectors>
VOXCONV_BF16_TARGET void SumPanel::Run(int64_t first) const {
  const uint16_t* from[kRows];
  float* to[kRows];
  __m512 sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    from[r] = operands->input + pairs->in[first + r] * operands->c_in;
    to[r] = sums + (pairs->out[first + r] - pairs->first_out) * stride;
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = overwrite ? _mm512_setzero_ps() : _mm512_loadu_ps(to[r] + v * kLanes);
    }
  }
  if (prefetches) {  // inputs lie anywhere, so the hardware does not foresee the next tile's
    const int64_t end = std::min<int64_t>(pairs->count, first + 2 * kRows);
    for (int64_t i = first + kRows; i < end; ++i) PrefetchRow(pairs->in[i]);
  }
  MultiplyStep<kRows, kVectors>(from, weights, operands->c_in, sum);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(to[r] + v * kLanes, sum[r][v]);
  }
}

// Rows [first, first + count) of the panel, with 1 <= count <= kMaxTileRows.
template <int kVectors, typename AnyPanel>
void RunTile(const AnyPanel& panel, int64_t count, int64_t first) {
  static constexpr auto kRun = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array{&AnyPanel::template Run<kLess + 1, kVectors>...};
  }
  (std::make_integer_sequence<int, kMaxTileRows>());
  (panel.*kRun[count - 1])(first);
}

// Tiles of nearly equal height, so that none waits for the latency of its few chains.
template <typename AnyPanel>
void RunTiles(const AnyPanel& panel, int64_t count, int64_t columns) {
  const int64_t tiles = CeilDiv(count, kMaxTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = count * t / tiles, end = count * (t + 1) / tiles;
    if (columns > kLanes) {
      RunTile<kPanelVectors>(panel, end - begin, begin);
    } else {
      RunTile<1>(panel, end - begin, begin);
    }
  }
}

}  // namespace

void IndirectBf16Gemm(const Bf16GemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows) {
  static const bool kHasProducts = HasBf16Products();
  if (!kHasProducts) return IndirectWidenedBf16Gemm(operands, steps, rows);
  if (rows.count == 0) return;
  Panel panel{&operands, steps.data(), static_cast<int64_t>(steps.size()), &rows};
  panel.matrix_size = PackedBf16WeightSize(operands.c_in, operands.c_out);
  // Panels outermost: one stays in the first-level cache while all rows pass by.
  for (int64_t column = 0; column < operands.c_out; column += kPanel) {
    panel.weights = operands.packed_weights + column * kPair * Pairs(operands.c_in);
    panel.first_column = column;
    panel.columns = std::min(kPanel, operands.c_out - column);
    RunTiles(panel, rows.count, panel.columns);
  }
}

void AddBf16Products(const Bf16SumOperands& operands, const Bf16Pairs& pairs, int64_t panel,
                     ProductMode mode) {
  static const bool kHasProducts = HasBf16Products();
  if (!kHasProducts) return AddWidenedBf16Products(operands, pairs, panel, mode);
  const int64_t column = panel * kPanel;
  RunTiles(SumPanel{.operands = &operands,
                    .pairs = &pairs,
                    .weights = operands.packed_weights + column * kPair * Pairs(operands.c_in),
                    .sums = operands.sums + column,
                    .stride = Bf16SumWidth(operands.c_out),
                    .overwrite = mode == ProductMode::kOverwrite,
                    .prefetches = panel == 0},
           pairs.count, operands.c_out - column);
}

namespace {

VOXCONV_BF16_TARGET void RoundRows(const float* sums, int64_t rows, int64_t c_out,
                                   uint16_t* output) {
  const int64_t stride = Bf16SumWidth(c_out);
  for (int64_t row = 0; row < rows; ++row, sums += stride, output += c_out) {
    for (int64_t column = 0; column < c_out; column += kLanes) {
      const auto mask = static_cast<__mmask16>((1u << std::min(kLanes, c_out - column)) - 1);
      const auto bits =
          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(sums + column)));
      _mm256_mask_storeu_epi16(output + column, mask, bits);
    }
  }
}

}  // namespace

void RoundBf16Sums(const float* sums, int64_t rows, int64_t c_out, uint16_t* output) {
  static const bool kHasProducts = HasBf16Products();
  if (!kHasProducts) return RoundWidenedBf16Sums(sums, rows, c_out, output);
  RoundRows(sums, rows, c_out, output);
}

VOXCONV_BF16_TARGET double RunBf16DotProducts(int64_t count) {
  constexpr int kChains = 12;
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  // Operands that the compiler does not know, and sums that stay normal numbers.
  const __m512bh x = Broadcast(count > 0 ? 0x3A833A83u : 0x3B033B03u);
  const __m512bh y = Broadcast(count > 1 ? 0x3A833A83u : 0x3B033B03u);
  const int64_t rounds = CeilDiv(count, kChains);
  for (int64_t round = 0; round < rounds; ++round) {
    for (auto& chain : sum) chain = _mm512_dpbf16_ps(chain, x, y);
  }
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  const double used = _mm512_cvtss_f32(sum[0]) > -1.0f ? 1.0 : 0.0;  // so that it is computed
  return used * 2.0 * static_cast<double>(rounds * kChains * kLanes * kPair);
}

#else

bool HasBf16Products() { return false; }

void IndirectBf16Gemm(const Bf16GemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows) {
  IndirectWidenedBf16Gemm(operands, steps, rows);
}

void AddBf16Products(const Bf16SumOperands& operands, const Bf16Pairs& pairs, int64_t panel,
                     ProductMode mode) {
  AddWidenedBf16Products(operands, pairs, panel, mode);
}

void RoundBf16Sums(const float* sums, int64_t rows, int64_t c_out, uint16_t* output) {
  RoundWidenedBf16Sums(sums, rows, c_out, output);
}

double RunBf16DotProducts(int64_t) { return 0; }

#endif  // VOXCONV_HAVE_BF16_PRODUCTS

}  // namespace voxconv
