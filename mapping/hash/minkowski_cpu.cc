// SPDX-License-Identifier: Apache-2.0
// The table of MinkowskiEngine's GPU coordinate map, on the CPU: see minkowski_cuda.cu.
#include <algorithm>
#include <cmath>
#include <utility>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"

namespace voxconv {
namespace {

class MinkowskiTable final : public HashTableCpu {
 public:
  MinkowskiTable(absl::Span<const Coordinate> coordinates, Array<int32_t> slots)
      : coordinates_(coordinates), slots_(std::move(slots)) {
    std::fill_n(slots_.data(), slots_.size(), -1);
    for (size_t row = 0; row < coordinates_.size(); ++row) {
      uint64_t slot = Home(coordinates_[row]);
      while (slots_.data()[slot] >= 0) slot = Next(slot);
      slots_.data()[slot] = static_cast<int32_t>(row);
    }
  }

  int64_t bytes() const override { return slots_.bytes(); }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    for (size_t i = 0; i < keys.size(); ++i) {
      rows[i] = keys[i] == kEmptyKey ? -1 : FindOne(UnpackKey(keys[i]));
    }
    return absl::OkStatus();
  }

 private:
  uint64_t Home(const Coordinate& c) const {
    return Murmur3(c) % static_cast<uint64_t>(slots_.size());
  }
  uint64_t Next(uint64_t slot) const {
    return slot + 1 == static_cast<uint64_t>(slots_.size()) ? 0 : slot + 1;
  }
  int32_t FindOne(const Coordinate& c) const {
    uint64_t slot = Home(c);
    while (true) {
      const int32_t row = slots_.data()[slot];
      if (row < 0 || coordinates_[row] == c) return row;
      slot = Next(slot);
    }
  }

  absl::Span<const Coordinate> coordinates_;  // of the set, which outlives the index
  Array<int32_t> slots_;                      // rows, -1: empty
};

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildMinkowskiCpu(const CoordinateSet& inputs, double load_factor,
                                                  const ExecutionContext& context) {
  // One slot at least stays empty and ends a search.
  const auto num_slots =
      static_cast<int64_t>(std::ceil(static_cast<double>(inputs.size()) / load_factor)) + 1;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> slots, AllocateArray<int32_t>(num_slots, context));
  return std::make_unique<MinkowskiTable>(inputs.rows().host(), std::move(slots));
}

}  // namespace voxconv
