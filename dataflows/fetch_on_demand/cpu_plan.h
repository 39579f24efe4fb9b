// SPDX-License-Identifier: Apache-2.0
// The plan of a layer on the CPU: which products it takes, and tiles of output rows.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_CPU_PLAN_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_CPU_PLAN_H_

#include <cstdint>
#include <vector>

#include "voxconv/core/dataflow.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/options.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {

// How the products of a layer are made: in f32 by multiply-adds or of three parts of bf16
// (amx_f32_gemm.h), in bf16 by bf16_gemm.h or amx_gemm.h.
enum class CpuProducts { kMultiplyAdds, kParts, kBf16, kBf16Amx };

// The products that a layer of this shape takes on this machine. The option `mma` decides.
CpuProducts CpuProductsOf(const Options& options, const ConvShape& shape);

struct CpuPlanRule {
  CpuProducts products = CpuProducts::kMultiplyAdds;
  int64_t most_rows = 0;  // of a tile: the option `tile`
  int threads = 1;
};

// Cuts the outputs into tiles and finds every tile's segment of every offset.
// O(K N_out / tile * log(pairs)).
class CpuPlan final : public DataflowPlan {
 public:
  CpuPlan(std::vector<FgmsLaunch> launches, const CpuPlanRule& rule, const KernelMap& map,
          const ConvShape& shape);

  const std::vector<FgmsLaunch>& launches() const { return launches_; }
  CpuProducts products() const { return products_; }
  // Whether the first offset of the first launch has a pair in every row of the output.
  bool overwrites() const { return overwrites_; }
  int64_t tile() const { return tile_; }
  int64_t tiles() const { return tiles_; }
  // First pair of offset k whose output is in tile t or behind it; t = tiles() ends the offset.
  int64_t fgms_ptr(int64_t k, int64_t t) const { return fgms_ptr_[k * (tiles_ + 1) + t]; }

  int weights_slot() const { return weights_slot_; }
  int zero_row_slot() const { return zero_row_slot_; }
  int padding_slot() const { return padding_slot_; }  // [tiles, c_out]: where padding is added
  // [threads, 2, tile_pairs()]: inputs and outputs of the pairs that a launch has in a tile, where
  // they are lined up. Otherwise tile_pairs() is 0.
  int pairs_slot() const { return pairs_slot_; }
  int64_t tile_pairs() const { return tile_pairs_; }
  // Products of three parts: [threads, AmxF32ScratchBytes(c_in)] bytes.
  int parts_slot() const { return parts_slot_; }
  // bf16: [threads, sums_size()], the sums of the tile that a thread computes.
  int sums_slot() const { return sums_slot_; }
  int64_t sums_size() const { return sums_size_; }
  // bf16 with AMX: [threads, AmxScratchSize(c_in)].
  int gathered_slot() const { return gathered_slot_; }

 private:
  void PutIdentityFirst(int32_t identity);
  void FindSegments(const KernelMap& map);
  int64_t MostPairs() const;
  void Count(const KernelMap& map, const ConvShape& shape);
  void BookF32(const ConvShape& shape, int threads);
  void BookBf16(const KernelMap& map, const ConvShape& shape, int threads);
  int64_t WeightBytes(const ConvShape& shape) const;

  std::vector<FgmsLaunch> launches_;
  CpuProducts products_;
  bool overwrites_ = false;
  int64_t tile_;
  int64_t tiles_;
  std::vector<int64_t> fgms_ptr_;  // [K, tiles + 1]
  int weights_slot_ = 0;
  int zero_row_slot_ = 0;
  int padding_slot_ = 0;
  int pairs_slot_ = 0;
  int64_t tile_pairs_ = 0;
  int parts_slot_ = 0;
  int sums_slot_ = 0;
  int64_t sums_size_ = 0;
  int gathered_slot_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_CPU_PLAN_H_
