// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/amx_gemm.h"

#include <algorithm>

#include "absl/types/span.h"
#include "voxconv/backends/cpu/amx_tiles.h"
#include "voxconv/core/check.h"
#include "voxconv/core/half.h"
#include "voxconv/core/integer.h"

#if VOXCONV_HAVE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace voxconv {

using amx::kBlockColumns;
using amx::kBlockRows;
using amx::kTileBytes;
using amx::kTileChannels;
using amx::kTileColumns;
using amx::kTileRows;

bool TakesAmxProducts(int64_t c_in) { return c_in % kTileChannels == 0; }

int64_t AmxScratchSize(int64_t c_in) { return kBlockRows * c_in; }

#if VOXCONV_HAVE_AMX

namespace {

bool AskForTiles() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0 || !HasBf16Products()) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Some rows of one product.
struct Block {
  const Bf16SumOperands* operands;
  const int32_t* in;
  const int32_t* out;
  int64_t rows;                       // up to kBlockRows
  absl::Span<const int32_t> next_in;  // of the next block
  float* first_sum;                   // sums of row 0
  int64_t stride;                     // of the sums
  bool overwrite;
};

// Copies the rows' inputs to [channels / 32][kBlockRows][32], the order of the tiles.
VOXCONV_AMX_TARGET void Gather(const Block& block, uint16_t* scratch) {
  const int64_t c_in = block.operands->c_in;
  for (int64_t r = 0; r < block.rows; ++r) {
    const uint16_t* from = block.operands->input + block.in[r] * c_in;
    uint16_t* to = scratch + r * kTileChannels;
    for (int64_t c = 0; c < c_in; c += kTileChannels, to += kBlockRows * kTileChannels) {
      _mm512_store_si512(to, _mm512_loadu_si512(from + c));
    }
  }
}

// The next block's rows lie anywhere, so the hardware does not foresee them.
void PrefetchNext(const Block& block) {
  const int64_t c_in = block.operands->c_in;
  for (const int32_t row : block.next_in) {
    const uint16_t* from = block.operands->input + row * c_in;
    for (int64_t c = 0; c < c_in; c += kTileChannels) __builtin_prefetch(from + c);
  }
}

// Adds products [rows, kBlockColumns] to their rows of sums, kVectors * 16 columns each.
template <int kVectors>
VOXCONV_AMX_TARGET void AddToSums(const Block& block, const float* products, int64_t column) {
  for (int64_t r = 0; r < block.rows; ++r) {
    float* to = block.first_sum + block.out[r] * block.stride + column;
    for (int v = 0; v < kVectors; ++v, to += kTileColumns) {
      const __m512 product = _mm512_load_ps(products + r * kBlockColumns + v * kTileColumns);
      const __m512 sum = block.overwrite ? product : _mm512_add_ps(_mm512_load_ps(to), product);
      _mm512_store_ps(to, sum);
    }
  }
}

// The product of gathered rows and one panel of weights, of 16 or 32 rows and columns.
template <int kRowTiles, int kColumnTiles>
VOXCONV_AMX_TARGET void MultiplyPanel(const uint16_t* inputs, const uint16_t* weights, int64_t c_in,
                                      float* products) {
  constexpr int64_t kWeightBytes = kColumnTiles * kTileColumns * 2 * sizeof(uint16_t);
  amx::ClearSums();
  for (int64_t c = 0; c < c_in; c += kTileChannels) {
    _tile_loadd(4, inputs, kTileBytes);
    _tile_loadd(6, weights, kWeightBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumnTiles == 2) {
      _tile_loadd(7, weights + 2 * kTileColumns, kWeightBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRowTiles == 2) {
      _tile_loadd(5, inputs + kTileRows * kTileChannels, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
    }
    inputs += kBlockRows * kTileChannels;
    weights += kTileChannels * kColumnTiles * kTileColumns;
  }
  amx::StoreSums<kRowTiles, kColumnTiles>(products);
}

template <int kRowTiles>
void MultiplyBlock(const Block& block, const uint16_t* scratch) {
  const Bf16SumOperands& operands = *block.operands;
  alignas(64) float products[kBlockRows * kBlockColumns];
  for (int64_t column = 0; column < operands.c_out; column += kBlockColumns) {
    const uint16_t* weights = operands.packed_weights + column * operands.c_in;
    if (operands.c_out - column > kTileColumns) {
      MultiplyPanel<kRowTiles, 2>(scratch, weights, operands.c_in, products);
      AddToSums<2>(block, products, column);
    } else {
      MultiplyPanel<kRowTiles, 1>(scratch, weights, operands.c_in, products);
      AddToSums<1>(block, products, column);
    }
  }
}

}  // namespace

bool HasAmxProducts() {
  static const bool kHas = AskForTiles();
  return kHas;
}

void AddAmxProducts(const Bf16SumOperands& operands, const Bf16Pairs& pairs, ProductMode mode,
                    uint16_t* scratch) {
  VOXCONV_CHECK(TakesAmxProducts(operands.c_in));
  if (pairs.count == 0) return;
  const amx::Tiles tiles;
  Block block{&operands};
  block.stride = Bf16SumWidth(operands.c_out);
  block.first_sum = operands.sums - pairs.first_out * block.stride;
  block.overwrite = mode == ProductMode::kOverwrite;
  for (int64_t first = 0; first < pairs.count; first += kBlockRows) {
    block.in = pairs.in + first;
    block.out = pairs.out + first;
    block.rows = std::min(kBlockRows, pairs.count - first);
    const int64_t left = pairs.count - first - block.rows;
    block.next_in = left > 0 ? absl::MakeConstSpan(block.in + block.rows, left) : pairs.next_in;
    block.next_in = block.next_in.subspan(0, kBlockRows);
    Gather(block, scratch);
    PrefetchNext(block);
    amx::LetTilesReadMemory();
    if (block.rows > kTileRows) {
      MultiplyBlock<2>(block, scratch);
    } else {
      MultiplyBlock<1>(block, scratch);
    }
  }
}

VOXCONV_AMX_TARGET double RunAmxProducts(int64_t count) {
  alignas(64) uint16_t values[kTileRows * kTileChannels];  // no zeros, which would cost less power
  for (int i = 0; i < kTileRows * kTileChannels; ++i) {
    values[i] = FloatToBf16Bits(1e-3f * static_cast<float>(i % 7 - 3) + 1e-4f);
  }
  const amx::Tiles tiles;
  amx::LetTilesReadMemory();
  _tile_loadd(4, values, kTileBytes);
  _tile_loadd(5, values, kTileBytes);
  _tile_loadd(6, values, kTileBytes);
  _tile_loadd(7, values, kTileBytes);
  constexpr int64_t kChains = 4;  // with two tiles of inputs and two of weights, as in products
  const int64_t rounds = CeilDiv(count, kChains);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr double kPerProduct = 2.0 * kTileRows * kTileChannels * kTileColumns;
  return static_cast<double>(rounds * kChains) * kPerProduct;
}

#else

bool HasAmxProducts() { return false; }

void AddAmxProducts(const Bf16SumOperands&, const Bf16Pairs&, ProductMode, uint16_t*) {
  VOXCONV_CHECK(HasAmxProducts());
}

double RunAmxProducts(int64_t) {
  VOXCONV_CHECK(HasAmxProducts());
  return 0;
}

#endif  // VOXCONV_HAVE_AMX

}  // namespace voxconv
