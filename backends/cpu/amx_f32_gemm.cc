// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/amx_f32_gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/backends/cpu/amx_tiles.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/check.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

using amx::kBlockColumns;
using amx::kBlockRows;
using amx::kTileBytes;
using amx::kTileChannels;
using amx::kTileColumns;
using amx::kTileRows;

constexpr int64_t kParts = 3;  // of a number: high, middle, low
constexpr int64_t kTileElements = kTileRows * kTileChannels;
constexpr int64_t kCacheLineFloats = 16;

// Magnitudes that are split, as bits of f32: [2^-48, 2^48), and 0.
constexpr uint32_t kLeastBits = (127u - 48) << 23;
constexpr uint32_t kEndBits = (127u + 48) << 23;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kHighHalf = 0xFFFF0000;
constexpr uint32_t kHalfUnit = 0x8000;  // of bf16

int64_t ScratchElements(int64_t c_in) { return kParts * kBlockRows * c_in; }

bool IsSplit(float x) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & kMagnitude;
  return magnitude == 0 || (magnitude >= kLeastBits && magnitude < kEndBits);
}

// The nearest number with the bits of bf16.
float RoundToHigh(float x) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + kHalfUnit) & kHighHalf);
}

uint16_t HighBits(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

// One matrix: panels of two tiles of columns, or one at the end. For each 32 channels a panel holds
// the tiles of the high parts, then those of the middle and the low ones. A row of a tile holds a
// pair of channels, of which each column's two weights lie side by side.
bool PackMatrix(const float* weights, int64_t c_in, int64_t c_out, uint16_t* packed) {
  bool all_split = true;
  for (int64_t panel = 0; panel < c_out; panel += kBlockColumns) {
    const int64_t tiles = CeilDiv(std::min(kBlockColumns, c_out - panel), kTileColumns);
    for (int64_t c = 0; c < c_in; ++c) {
      uint16_t* const step = packed + c / kTileChannels * kParts * tiles * kTileElements +
                             c % kTileChannels / 2 * kTileChannels + c % 2;
      for (int64_t j = 0; j < tiles * kTileColumns; ++j) {
        const float w = panel + j < c_out ? weights[c * c_out + panel + j] : 0.0f;
        all_split = all_split && IsSplit(w);
        const float high = RoundToHigh(w), middle = RoundToHigh(w - high);
        uint16_t* const to = step + j / kTileColumns * kTileElements + j % kTileColumns * 2;
        to[0] = HighBits(high);
        to[tiles * kTileElements] = HighBits(middle);
        to[2 * tiles * kTileElements] = HighBits(w - high - middle);
      }
    }
    packed += kParts * tiles * kTileColumns * c_in;
  }
  return all_split;
}

}  // namespace

bool TakesAmxF32Products(int64_t c_in) { return c_in % kTileChannels == 0 && HasAmxProducts(); }

int64_t AmxF32ScratchBytes(int64_t c_in) { return 2 * ScratchElements(c_in) * sizeof(uint16_t); }

int64_t PackedAmxF32WeightSize(int64_t c_in, int64_t c_out) {
  return kParts * c_in * CeilDiv(c_out, kTileColumns) * kTileColumns;
}

bool PackAmxF32Weights(const float* weights, int64_t matrices, int64_t c_in, int64_t c_out,
                       uint16_t* packed, const ExecutionContext& context) {
  std::atomic<bool> all_split = true;
  const int64_t size = PackedAmxF32WeightSize(c_in, c_out);
  ParallelRanges(context, matrices, 1, [&](int64_t k, int64_t) {
    if (!PackMatrix(weights + k * c_in * c_out, c_in, c_out, packed + k * size)) all_split = false;
  });
  return all_split;
}

#if VOXCONV_HAVE_AMX

namespace {

// Some rows of one product.
struct Block {
  int64_t matrix = 0;
  int64_t rows = 0;  // up to kBlockRows; 0: there is none
  const int32_t* in = nullptr;
  const int32_t* out = nullptr;
  bool overwrite = false;
};

// The blocks of all products, in order.
class Blocks {
 public:
  explicit Blocks(absl::Span<const AmxF32Pairs> products) : products_(products) {}
  Block Next() {
    while (product_ < products_.size() && first_ == products_[product_].count) {
      ++product_;
      first_ = 0;
    }
    if (product_ == products_.size()) return {};
    const AmxF32Pairs& pairs = products_[product_];
    const int64_t rows = std::min(kBlockRows, pairs.count - first_);
    const int64_t first = std::exchange(first_, first_ + rows);
    return {pairs.matrix, rows, pairs.in + first, pairs.out + first, pairs.overwrite};
  }

 private:
  absl::Span<const AmxF32Pairs> products_;
  size_t product_ = 0;
  int64_t first_ = 0;
};

// Splits 32 numbers into their parts, `part_stride` elements apart. Returns whether one of them is
// out of range.
VOXCONV_AMX_INLINE bool SplitRow(const float* from, uint16_t* to, int64_t part_stride) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(kHighHalf));
  const __m512i half_unit = _mm512_set1_epi32(static_cast<int>(kHalfUnit));
  const __m512i magnitude = _mm512_set1_epi32(static_cast<int>(kMagnitude));
  const __m512i least = _mm512_set1_epi32(static_cast<int>(kLeastBits));
  const __m512i range = _mm512_set1_epi32(static_cast<int>(kEndBits - kLeastBits));
  // The high halves of 32 numbers.
  const __m512i odd_words =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                       25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  __m512i parts[kParts][2];
  __mmask16 out_of_range[2];
  for (int half = 0; half < 2; ++half) {
    const __m512 x = _mm512_loadu_ps(from + half * kCacheLineFloats);
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i above = _mm512_sub_epi32(_mm512_and_si512(bits, magnitude), least);
    out_of_range[half] =
        _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(bits, magnitude), above, range);
    const __m512i high = _mm512_and_si512(_mm512_add_epi32(bits, half_unit), high_half);
    const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(high));
    const __m512i middle =
        _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half_unit), high_half);
    const __m512 low = _mm512_sub_ps(rest, _mm512_castsi512_ps(middle));
    parts[0][half] = high;
    parts[1][half] = middle;
    parts[2][half] = _mm512_castps_si512(low);
  }
  for (int part = 0; part < kParts; ++part) {
    _mm512_store_si512(to + part * part_stride,
                       _mm512_permutex2var_epi16(parts[part][0], odd_words, parts[part][1]));
  }
  return _kortestz_mask16_u8(out_of_range[0], out_of_range[1]) == 0;
}

// Inputs of a block: [channels / 32][kParts][kBlockRows][32], the order of the tiles.
struct SplitRows {
  uint16_t* parts;
  uint32_t unsplit = 0;  // bit r: row r has a number that is out of range
};

// Splits the rows of a block, and asks for those of the block behind it, 32 channels at a time.
class Splitter {
 public:
  void Start(const AmxF32Operands& operands, const Block& block, const Block& behind,
             SplitRows* split) {
    input_ = operands.input;
    c_in_ = operands.c_in;
    block_ = block;
    behind_ = behind;
    split_ = split;
    split_->unsplit = 0;
    rows_ = std::max(block.rows, behind.rows);
    row_ = 0;
    channel_ = 0;
    if (rows_ > 0) FindRow();
  }

  VOXCONV_AMX_INLINE void Work(int64_t units) {
    for (; units > 0 && row_ < rows_; --units) {
      if (from_ != nullptr && SplitRow(from_ + channel_, to_, kBlockRows * kTileChannels)) {
        split_->unsplit |= 1u << row_;
      }
      __builtin_prefetch(ahead_ + channel_);  // the hardware fetches lines by two
      to_ += kParts * kBlockRows * kTileChannels;
      channel_ += kTileChannels;
      if (channel_ < c_in_) continue;
      channel_ = 0;
      if (++row_ < rows_) FindRow();
    }
  }

 private:
  // Inlined into functions with and without the instructions of AMX.
  __attribute__((always_inline)) inline void FindRow() {
    from_ = row_ < block_.rows ? input_ + block_.in[row_] * c_in_ : nullptr;
    ahead_ = input_ + (row_ < behind_.rows ? behind_.in[row_] : 0) * c_in_;
    to_ = split_->parts + row_ * kTileChannels;
  }

  const float* input_ = nullptr;
  int64_t c_in_ = 0;
  Block block_, behind_;
  SplitRows* split_ = nullptr;
  int64_t rows_ = 0, row_ = 0, channel_ = 0;
  const float* from_ = nullptr;
  const float* ahead_ = nullptr;
  uint16_t* to_ = nullptr;
};

// One panel of columns of a matrix.
struct Panel {
  const uint16_t* weights = nullptr;
  int64_t first = 0, columns = 0;
};

// The rows of the output that a block adds to, in one panel of columns.
class OutputRows {
 public:
  void Start(const AmxF32Operands& operands, const Block& block, const Panel& panel) {
    output_ = operands.output + panel.first;
    stride_ = operands.c_out;
    block_ = block;
    row_ = 0;
    adds_whole_ = !block.overwrite && panel.columns == kBlockColumns;
    for (int v = 0; v < 2; ++v) {
      const int64_t left = panel.columns - v * kTileColumns;
      masks_[v] = static_cast<__mmask16>((1u << std::clamp<int64_t>(left, 0, kTileColumns)) - 1);
    }
  }

  // Asks for some of the rows.
  VOXCONV_AMX_INLINE void Ask(int64_t rows) {
    for (const int64_t end = std::min(block_.rows, row_ + rows); row_ < end; ++row_) {
      const float* at = output_ + block_.out[row_] * stride_;
      __builtin_prefetch(at, 1);
      __builtin_prefetch(at + kCacheLineFloats, 1);
    }
  }

  // Adds products, [kBlockRows, kBlockColumns], to some of the rows.
  VOXCONV_AMX_INLINE void Add(const float* products, int64_t rows) {
    for (const int64_t end = std::min(block_.rows, row_ + rows); row_ < end; ++row_) {
      const float* from = products + row_ * kBlockColumns;
      float* to = output_ + block_.out[row_] * stride_;
      for (int v = 0; v < 2; ++v, from += kTileColumns, to += kTileColumns) {
        const __m512 product = _mm512_load_ps(from);
        if (adds_whole_) {
          _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), product));
        } else if (block_.overwrite) {
          _mm512_mask_storeu_ps(to, masks_[v], product);
        } else {
          const __m512 old = _mm512_maskz_loadu_ps(masks_[v], to);
          _mm512_mask_storeu_ps(to, masks_[v], _mm512_add_ps(old, product));
        }
      }
    }
  }

 private:
  float* output_ = nullptr;
  int64_t stride_ = 0;
  Block block_;
  int64_t row_ = 0;
  bool adds_whole_ = false;
  __mmask16 masks_[2] = {};
};

// What is done between the products of tiles, a part of it in each of the slots. The core does it
// while it waits for products.
struct SideWork {
  static constexpr int64_t kSlots = 6;  // of a panel, for each 32 channels

  explicit SideWork(const AmxF32Operands& operands) {
    const int64_t groups = operands.c_in / kTileChannels;
    units_per_slot = CeilDiv(kBlockRows, kSlots * CeilDiv(operands.c_out, kBlockColumns));
    rows_per_slot = CeilDiv(kBlockRows, kSlots * groups);
  }

  VOXCONV_AMX_INLINE void Slot() {
    splitter.Work(units_per_slot);
    added.Add(products, rows_per_slot);
    asked.Ask(rows_per_slot);
  }

  Splitter splitter;  // of the next block
  OutputRows asked;   // by this panel
  OutputRows added;   // of the panel before, whose products are those
  const float* products = nullptr;
  int64_t units_per_slot, rows_per_slot;
};

// sums += inputs * weights, of one part each, which were loaded.
template <int kRowTiles, int kColumnTiles>
VOXCONV_AMX_INLINE void MultiplyTiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumnTiles == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRowTiles == 2) {
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

template <int kRowTiles>
VOXCONV_AMX_INLINE void LoadInputs(const uint16_t* inputs, int part) {
  inputs += part * kBlockRows * kTileChannels;
  _tile_loadd(4, inputs, kTileBytes);
  if constexpr (kRowTiles == 2) _tile_loadd(5, inputs + kTileElements, kTileBytes);
}

template <int kColumnTiles>
VOXCONV_AMX_INLINE void LoadWeights(const uint16_t* weights, int part) {
  weights += part * kColumnTiles * kTileElements;
  _tile_loadd(6, weights, kTileBytes);
  if constexpr (kColumnTiles == 2) _tile_loadd(7, weights + kTileElements, kTileBytes);
}

// The product of split rows and one panel of weights, of 16 or 32 rows and columns.
template <int kRowTiles, int kColumnTiles>
VOXCONV_AMX_INLINE void MultiplyPanel(const uint16_t* inputs, const uint16_t* weights, int64_t c_in,
                                      SideWork& side, float* products) {
  constexpr int kHigh = 0, kMiddle = 1, kLow = 2;
  amx::ClearSums();
  for (int64_t c = 0; c < c_in; c += kTileChannels) {
    LoadInputs<kRowTiles>(inputs, kLow);
    LoadWeights<kColumnTiles>(weights, kHigh);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    LoadInputs<kRowTiles>(inputs, kMiddle);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    LoadWeights<kColumnTiles>(weights, kMiddle);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    LoadInputs<kRowTiles>(inputs, kHigh);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    LoadWeights<kColumnTiles>(weights, kLow);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    LoadWeights<kColumnTiles>(weights, kHigh);
    MultiplyTiles<kRowTiles, kColumnTiles>();
    side.Slot();
    inputs += kParts * kBlockRows * kTileChannels;
    weights += kParts * kColumnTiles * kTileElements;
  }
  amx::StoreSums<kRowTiles, kColumnTiles>(products);
}

// 16 weights of the even or odd channel of a pair, put together again.
VOXCONV_AMX_INLINE __m512 JoinWeights(const uint16_t* high, int64_t part_stride, bool odd) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(kHighHalf));
  __m512 parts[kParts];
  for (int part = 0; part < kParts; ++part) {
    const __m512i pair = _mm512_load_si512(high + part * part_stride);
    parts[part] = _mm512_castsi512_ps(odd ? _mm512_and_si512(pair, high_half)
                                          : _mm512_maskz_slli_epi32(0xFFFF, pair, 16));
  }
  return _mm512_add_ps(parts[0], _mm512_add_ps(parts[1], parts[2]));
}

// The product of one row that is not split and a panel of weights.
VOXCONV_AMX_TARGET void MultiplyUnsplitRow(const float* from, const Panel& panel, int64_t c_in,
                                           float* products) {
  const int64_t tiles = CeilDiv(panel.columns, kTileColumns);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < c_in; ++c) {
      const uint16_t* high = panel.weights +
                             (c / kTileChannels * kParts * tiles + tile) * kTileElements +
                             c % kTileChannels / 2 * kTileChannels;
      const __m512 weights = JoinWeights(high, tiles * kTileElements, c % 2 == 1);
      sum = _mm512_fmadd_ps(_mm512_set1_ps(from[c]), weights, sum);
    }
    _mm512_store_ps(products + tile * kTileColumns, sum);
  }
}

// Computes the products of a panel, and leaves their addition to the next one.
template <int kRowTiles, int kColumnTiles>
VOXCONV_AMX_TARGET void ComputePanel(const AmxF32Operands& operands, const Block& block,
                                     const SplitRows& inputs, const Panel& panel, SideWork& side,
                                     float* products) {
  side.asked.Start(operands, block, panel);
  MultiplyPanel<kRowTiles, kColumnTiles>(inputs.parts, panel.weights, operands.c_in, side,
                                         products);
  for (uint32_t left = inputs.unsplit; left != 0; left &= left - 1) {
    const int r = std::countr_zero(left);
    MultiplyUnsplitRow(operands.input + block.in[r] * operands.c_in, panel, operands.c_in,
                       products + r * kBlockColumns);
  }
  side.added.Start(operands, block, panel);
  side.products = products;
}

// Products of a panel, and those of the panel before it.
struct alignas(64) Products {
  float of[2][kBlockRows * kBlockColumns];
  int now = 0;
};

template <int kRowTiles>
void ComputeBlock(const AmxF32Operands& operands, const Block& block, const SplitRows& inputs,
                  SideWork& side, Products& products) {
  const int64_t matrix_size = PackedAmxF32WeightSize(operands.c_in, operands.c_out);
  Panel panel{operands.packed_weights + block.matrix * matrix_size};
  for (; panel.first < operands.c_out; panel.first += kBlockColumns) {
    panel.columns = std::min(kBlockColumns, operands.c_out - panel.first);
    if (panel.columns > kTileColumns) {
      ComputePanel<kRowTiles, 2>(operands, block, inputs, panel, side, products.of[products.now]);
    } else {
      ComputePanel<kRowTiles, 1>(operands, block, inputs, panel, side, products.of[products.now]);
    }
    products.now = 1 - products.now;
    panel.weights += kParts * kBlockColumns * operands.c_in;
  }
}

VOXCONV_AMX_TARGET void SplitAll(const AmxF32Operands& operands, Splitter& splitter) {
  splitter.Work(kBlockRows * operands.c_in / kTileChannels);
}

VOXCONV_AMX_TARGET void AddLast(SideWork& side) { side.added.Add(side.products, kBlockRows); }

}  // namespace

void AddAmxF32Products(const AmxF32Operands& operands, absl::Span<const AmxF32Pairs> products,
                       void* scratch) {
  VOXCONV_CHECK(TakesAmxF32Products(operands.c_in));
  const amx::Tiles tiles;
  Blocks blocks(products);
  auto* parts = static_cast<uint16_t*>(scratch);
  SplitRows inputs{parts}, next_inputs{parts + ScratchElements(operands.c_in)};
  Products block_products;
  SideWork side(operands);
  Block block = blocks.Next(), next = blocks.Next();
  side.splitter.Start(operands, block, next, &inputs);
  SplitAll(operands, side.splitter);
  while (block.rows > 0) {
    const Block after = blocks.Next();
    side.splitter.Start(operands, next, after, &next_inputs);
    amx::LetTilesReadMemory();
    if (block.rows > kTileRows) {
      ComputeBlock<2>(operands, block, inputs, side, block_products);
    } else {
      ComputeBlock<1>(operands, block, inputs, side, block_products);
    }
    std::swap(inputs, next_inputs);
    block = std::exchange(next, after);
  }
  AddLast(side);
}

#else

void AddAmxF32Products(const AmxF32Operands& operands, absl::Span<const AmxF32Pairs>, void*) {
  VOXCONV_CHECK(TakesAmxF32Products(operands.c_in));
}

#endif  // VOXCONV_HAVE_AMX

}  // namespace voxconv
