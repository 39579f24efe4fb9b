// SPDX-License-Identifier: Apache-2.0
// TorchSparse's cuckoo table on the CPU: see torchsparse1_table.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"
#include "voxconv/mapping/hash/torchsparse1_table.h"

namespace voxconv {
namespace {

using torchsparse1::Functions;
using torchsparse1::kBucket;
using torchsparse1::kFunctions;
using torchsparse1::Sizes;

struct Slot {
  uint64_t hash;
  int64_t row;  // -1: empty
};

class Torchsparse1Table final : public HashTableCpu {
 public:
  Torchsparse1Table(absl::Span<const Coordinate> coordinates, const Sizes& sizes, Array<Slot> slots)
      : coordinates_(coordinates), sizes_(sizes), slots_(std::move(slots)) {}

  int64_t bytes() const override { return slots_.bytes(); }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    for (size_t i = 0; i < keys.size(); ++i) {
      rows[i] = keys[i] == kEmptyKey ? -1 : FindOne(UnpackKey(keys[i]));
    }
    return absl::OkStatus();
  }

  // Empties the table and inserts all rows. False if some found no place with the functions of
  // this attempt.
  bool Fill(int attempt) {
    functions_ = torchsparse1::FunctionsOf(attempt, sizes_.buckets);
    std::fill_n(slots_.data(), slots_.size(), Slot{0, -1});
    for (size_t row = 0; row < coordinates_.size(); ++row) {
      if (!Insert({Fnv1a60(coordinates_[row]), static_cast<int64_t>(row)})) return false;
    }
    return true;
  }

 private:
  Slot& At(uint64_t hash, int f) const {
    const auto bucket = static_cast<int64_t>(hash % static_cast<uint64_t>(sizes_.buckets));
    const uint32_t slot = functions_.function[f].SlotOf(hash);
    return const_cast<Slot*>(slots_.data())[f * sizes_.entries() + bucket * kBucket + slot];
  }

  bool Insert(Slot entry) {
    int f = 0;
    for (int evictions = 0; evictions <= sizes_.most_evictions; ++evictions) {
      Slot& slot = At(entry.hash, f);
      std::swap(slot, entry);
      if (entry.row < 0) return true;
      // What had this slot goes on with the function after the one that had placed it.
      f = (f + 1) % kFunctions;
    }
    return false;
  }

  int32_t FindOne(const Coordinate& c) const {
    const uint64_t hash = Fnv1a60(c);
    for (int f = 0; f < kFunctions; ++f) {
      const Slot& slot = At(hash, f);
      if (slot.hash == hash && slot.row >= 0 && coordinates_[slot.row] == c) {
        return static_cast<int32_t>(slot.row);
      }
    }
    return -1;
  }

  absl::Span<const Coordinate> coordinates_;  // of the set, which outlives the index
  Sizes sizes_;
  Functions functions_;
  Array<Slot> slots_;  // [kFunctions, buckets, kBucket]
};

// Whether no bucket gets more entries than it holds.
bool BucketsSuffice(absl::Span<const Coordinate> coordinates, const Sizes& sizes) {
  std::vector<int32_t> entries(sizes.buckets);
  for (const Coordinate& c : coordinates) {
    if (++entries[Fnv1a60(c) % static_cast<uint64_t>(sizes.buckets)] > kBucket) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildTorchsparse1Cpu(const CoordinateSet& inputs,
                                                     const ExecutionContext& context) {
  const absl::Span<const Coordinate> rows = inputs.rows().host();
  for (int doublings = 0; doublings <= torchsparse1::kMostDoublings; ++doublings) {
    const Sizes sizes = Sizes::Of(inputs.size(), doublings);
    if (!BucketsSuffice(rows, sizes)) continue;
    VOXCONV_ASSIGN_OR_RETURN(Array<Slot> slots, AllocateArray<Slot>(sizes.slots(), context));
    auto table = std::make_unique<Torchsparse1Table>(rows, sizes, std::move(slots));
    for (int attempt = 0; attempt < torchsparse1::kMostAttempts; ++attempt) {
      if (table->Fill(attempt)) return table;
    }
  }
  return torchsparse1::NoPlace(inputs.size());
}

}  // namespace voxconv
