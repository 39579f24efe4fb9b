// SPDX-License-Identifier: Apache-2.0
// The table of PCEngine's release, on the CPU: see pcengine_cuda.cu.
#include <algorithm>
#include <utility>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"

namespace voxconv {
namespace {

class PcengineTable final : public HashTableCpu {
 public:
  PcengineTable(const CoordinateSet& inputs, Array<int32_t> rows, Array<uint64_t> values)
      : mask_(static_cast<uint64_t>(rows.size() - 1)),
        rows_(std::move(rows)),
        values_(std::move(values)) {
    std::fill_n(rows_.data(), rows_.size(), -1);
    const absl::Span<const Coordinate> coordinates = inputs.rows().host();
    for (size_t row = 0; row < coordinates.size(); ++row) {
      uint64_t slot = PrimeSum(coordinates[row]) & mask_;
      int32_t moving = std::exchange(rows_.data()[slot], static_cast<int32_t>(row));
      while (moving >= 0) {
        slot = Next(slot);
        moving = std::exchange(rows_.data()[slot], moving);
      }
    }
    for (int64_t slot = 0; slot < rows_.size(); ++slot) {
      const int32_t row = rows_.data()[slot];
      values_.data()[slot] = row < 0 ? kEmptyKey : PackKey(coordinates[row]);
    }
  }

  int64_t bytes() const override { return rows_.bytes() + values_.bytes(); }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    for (size_t i = 0; i < keys.size(); ++i) rows[i] = keys[i] == kEmptyKey ? -1 : FindOne(keys[i]);
    return absl::OkStatus();
  }

 private:
  uint64_t Next(uint64_t slot) const { return (slot + kProbeStep) & mask_; }
  int32_t FindOne(uint64_t key) const {
    uint64_t slot = PrimeSum(UnpackKey(key)) & mask_;
    while (values_.data()[slot] != key && rows_.data()[slot] >= 0) slot = Next(slot);
    return rows_.data()[slot];
  }

  uint64_t mask_;
  Array<int32_t> rows_;  // -1: empty
  Array<uint64_t> values_;
};

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildPcengineCpu(const CoordinateSet& inputs,
                                                 const ExecutionContext& context) {
  const int64_t num_slots = PcengineSlots(inputs.size());
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(num_slots, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> values, AllocateArray<uint64_t>(num_slots, context));
  return std::make_unique<PcengineTable>(inputs, std::move(rows), std::move(values));
}

}  // namespace voxconv
