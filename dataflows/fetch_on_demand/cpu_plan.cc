// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/fetch_on_demand/cpu_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/amx_f32_gemm.h"
#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/packed_weights.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

constexpr int64_t kPairBytes = 2 * sizeof(int32_t);

// Whether a tile's pairs are lined up (LineUpPairs). Rows of narrower layers cost less than that.
bool LinesUpPairs(const ConvShape& shape) {
  constexpr int64_t kNarrow = 32;
  return shape.types.precision != Precision::kBF16 && shape.c_in > kNarrow;
}

// Rows of a tile: `most`, or fewer where threads would be idle or sums in f32 would not stay in the
// cache. What a row holds does not depend on it.
int64_t TileRows(const CpuPlanRule& rule, const KernelMap& map, const ConvShape& shape) {
  constexpr int64_t kTilesPerThread = 8;
  constexpr int64_t kLeast = 512;
  constexpr int64_t kMostSums = 1 << 18;
  int64_t most = rule.most_rows;
  if (rule.products == CpuProducts::kBf16Amx) {
    most = std::min(most, std::max(kLeast, kMostSums / Bf16SumWidth(shape.c_out)));
  } else if (rule.products == CpuProducts::kBf16) {
    return std::min(most, kLeast);
  }
  // Wide layers have large weights, which all rows of a tile should share.
  constexpr int64_t kWide = 64;
  constexpr int64_t kRowsOfMiddleLayers = 1024;
  if (rule.products == CpuProducts::kMultiplyAdds && LinesUpPairs(shape) && shape.c_in <= kWide &&
      shape.c_out <= kWide) {
    most = std::min(most, kRowsOfMiddleLayers);
  }
  const int64_t share = CeilDiv(map.num_outputs(), kTilesPerThread * rule.threads);
  return std::min(most, std::max(kLeast, share));
}

// Names the products in a plan.
const char* NameOf(CpuProducts products) {
  switch (products) {
    case CpuProducts::kParts:
      return "AMX, f32 as three parts of bf16";
    case CpuProducts::kBf16Amx:
      return "AMX";
    case CpuProducts::kBf16:
      return Bf16Target();
    case CpuProducts::kMultiplyAdds:
      break;
  }
  return SgemmTarget();
}

}  // namespace

CpuProducts CpuProductsOf(const Options& options, const ConvShape& shape) {
  if (shape.types.precision == Precision::kBF16) {
    const bool amx = TakesAmxProducts(shape.c_in) && HasAmxProducts();
    return amx ? CpuProducts::kBf16Amx : CpuProducts::kBf16;
  }
  // In narrower layers splitting the inputs, and adding the products up, costs what AMX saves.
  constexpr int64_t kNarrow = 64;
  const bool parts = options.GetEnum("mma") == "6xbf16" && shape.c_out > kNarrow &&
                     TakesAmxF32Products(shape.c_in);
  return parts ? CpuProducts::kParts : CpuProducts::kMultiplyAdds;
}

CpuPlan::CpuPlan(std::vector<FgmsLaunch> launches, const CpuPlanRule& rule, const KernelMap& map,
                 const ConvShape& shape)
    : launches_(std::move(launches)),
      products_(rule.products),
      tile_(TileRows(rule, map, shape)),
      tiles_(CeilDiv(map.num_outputs(), tile_)) {
  PutIdentityFirst(map.identity_offset());
  FindSegments(map);
  Count(map, shape);
  weights_slot_ = booking_.Book(WeightBytes(shape));
  if (shape.types.precision == Precision::kBF16) {
    BookBf16(map, shape, rule.threads);
  } else {
    BookF32(shape, rule.threads);
  }
  kernel_ = absl::StrCat("products of ", tile_, " rows, ", NameOf(products_));
  weights_layout_ =
      products_ == CpuProducts::kParts ? PackedWeights::kPartsLayout : PackedWeights::kLayout;
}

int64_t CpuPlan::WeightBytes(const ConvShape& shape) const {
  const int64_t panels = PackedWeights::Bytes(shape);
  if (products_ != CpuProducts::kParts) return panels;
  return std::max(panels, PackedWeights::PartsBytes(shape));  // either, by the weights
}

// Layers of three parts book what multiply-adds need too: some weights have no such parts.
void CpuPlan::BookF32(const ConvShape& shape, int threads) {
  zero_row_slot_ = booking_.Book<float>(shape.c_in);
  const bool pads = work_.padded_pairs > work_.true_pairs;
  padding_slot_ = booking_.Book<float>(pads ? tiles_ * shape.c_out : 0);
  if (LinesUpPairs(shape)) tile_pairs_ = MostPairs();
  pairs_slot_ = booking_.Book<int32_t>(threads * 2 * tile_pairs_);
  const bool parts = products_ == CpuProducts::kParts;
  parts_slot_ = booking_.Book<char>(parts ? threads * AmxF32ScratchBytes(shape.c_in) : 0);
}

void CpuPlan::BookBf16(const KernelMap& map, const ConvShape& shape, int threads) {
  sums_size_ = std::min(tile_, map.num_outputs()) * Bf16SumWidth(shape.c_out);
  sums_slot_ = booking_.Book<float>(threads * sums_size_);
  const bool amx = products_ == CpuProducts::kBf16Amx;
  gathered_slot_ = booking_.Book<uint16_t>(amx ? threads * AmxScratchSize(shape.c_in) : 0);
}

// The identity offset has a pair in every row. Where it comes first, nothing need be cleared.
void CpuPlan::PutIdentityFirst(int32_t identity) {
  for (auto launch = launches_.begin(); launch != launches_.end(); ++launch) {
    auto& offsets = launch->offsets;
    const auto found = std::find(offsets.begin(), offsets.end(), identity);
    if (found == offsets.end()) continue;
    const auto padded = launch->padded_rows.begin() + (found - offsets.begin());
    std::rotate(launch->padded_rows.begin(), padded, padded + 1);
    std::rotate(offsets.begin(), found, found + 1);
    std::rotate(launches_.begin(), launch, launch + 1);
    overwrites_ = true;
    return;
  }
}

// PCEngine's FGMS_ptr, refined from offsets to tiles of an offset: pairs ascend by output row.
void CpuPlan::FindSegments(const KernelMap& map) {
  const int32_t* out = map.pairs().out.data();
  fgms_ptr_.resize(map.num_offsets() * (tiles_ + 1));
  for (int64_t k = 0; k < map.num_offsets(); ++k) {
    const int32_t* end = out + map.offset_ptr()[k + 1];
    const int32_t* at = out + map.offset_ptr()[k];
    for (int64_t t = 0; t <= tiles_; ++t) {
      // A row has one pair at most.
      at = std::lower_bound(at, at + std::min<int64_t>(end - at, tile_), t * tile_);
      fgms_ptr_[k * (tiles_ + 1) + t] = at - out;
    }
  }
}

// The most pairs that a launch has in a tile.
int64_t CpuPlan::MostPairs() const {
  int64_t most = 0;
  for (const FgmsLaunch& launch : launches_) {
    for (int64_t t = 0; t < tiles_; ++t) {
      int64_t here = 0;
      for (const int32_t k : launch.offsets) here += fgms_ptr(k, t + 1) - fgms_ptr(k, t);
      most = std::max(most, here);
    }
  }
  return most;
}

// Inputs are read once a pair, weights once a tile and offset that meet; a tile of the output
// stays in cache within a launch and comes back for the next.
void CpuPlan::Count(const KernelMap& map, const ConvShape& shape) {
  const int64_t element = SizeOf(shape.types.input);
  const int64_t matrix_bytes = shape.c_in * shape.c_out * element;
  const int64_t output_bytes = map.num_outputs() * shape.c_out * element;
  const int64_t packed_bytes = WeightBytes(shape) / std::max<int64_t>(map.num_offsets(), 1);
  int64_t segments = 0;
  for (int64_t k = 0; k < map.num_offsets(); ++k) {
    for (int64_t t = 0; t < tiles_; ++t) segments += fgms_ptr(k, t) < fgms_ptr(k, t + 1);
  }
  const int64_t launches = static_cast<int64_t>(launches_.size());
  work_.launches = launches;
  work_.true_pairs = map.num_pairs();
  for (const FgmsLaunch& launch : launches_) {
    for (int64_t rows : launch.padded_rows) work_.padded_pairs += rows;
  }
  work_.bytes_read = map.num_offsets() * matrix_bytes +
                     map.num_pairs() * (shape.c_in * element + kPairBytes) +
                     segments * packed_bytes + std::max<int64_t>(launches - 1, 0) * output_bytes;
  work_.bytes_written =
      map.num_offsets() * packed_bytes + std::max<int64_t>(launches, 1) * output_bytes;
}

}  // namespace voxconv
