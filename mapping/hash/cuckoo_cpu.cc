// SPDX-License-Identifier: Apache-2.0
// Two-choice buckets of four slots (Pagh and Rodler's cuckoo hashing, bucketised): a lookup reads
// two buckets, found or not, whatever the fill.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"

namespace voxconv {
namespace {

constexpr int kGroup = 16;
constexpr int kSlots = 4;
// At the highest load_factor allowed (0.95, threshold 0.98) chains are mostly below 100 steps.
constexpr int kMaxEvictions = 2000;
constexpr int kMaxSeeds = 16;
// A bucket is chosen by 32 bits of hash. Still two for each of the most rows there can be.
constexpr int64_t kMaxBuckets = (int64_t{1} << 32) - 1;

struct alignas(64) Bucket {
  uint64_t keys[kSlots];
  int32_t rows[kSlots];
};

class CuckooTable final : public HashTableCpu {
 public:
  CuckooTable(Array<Bucket> buckets, uint64_t seed) : buckets_(std::move(buckets)), seed_(seed) {}

  int64_t bytes() const override { return buckets_.bytes(); }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    const size_t grouped = keys.size() / kGroup * kGroup;
    for (size_t i = 0; i < grouped; i += kGroup) FindGroup<kGroup>(keys.data() + i, rows + i);
    for (size_t i = grouped; i < keys.size(); ++i) FindGroup<1>(keys.data() + i, rows + i);
    return absl::OkStatus();
  }

  // Empties the table and inserts all rows; false if an eviction chain grew too long.
  bool Fill(absl::Span<const Coordinate> rows) {
    Bucket empty;
    std::fill_n(empty.keys, kSlots, kEmptyKey);
    std::fill_n(empty.rows, kSlots, -1);
    std::fill_n(buckets_.data(), buckets_.size(), empty);
    for (size_t row = 0; row < rows.size(); ++row) {
      if (!Insert(PackKey(rows[row]), static_cast<int32_t>(row))) return false;
    }
    return true;
  }

  void set_seed(uint64_t seed) { seed_ = seed; }

 private:
  struct Choice {
    uint64_t first, second;
  };

  // Both from one hash, of whose 64 bits each takes half.
  Choice ChoicesOf(uint64_t key) const {
    const uint64_t hash = MixKey(key ^ seed_);
    const auto size = static_cast<uint64_t>(buckets_.size());
    return {(hash >> 32) * size >> 32, (hash & 0xffffffffu) * size >> 32};
  }

  bool PutIfFree(uint64_t bucket, uint64_t key, int32_t row) {
    Bucket& b = buckets_.data()[bucket];
    for (int i = 0; i < kSlots; ++i) {
      if (b.keys[i] != kEmptyKey) continue;
      b.keys[i] = key;
      b.rows[i] = row;
      return true;
    }
    return false;
  }

  bool Insert(uint64_t key, int32_t row) {
    Choice choice = ChoicesOf(key);
    if (PutIfFree(choice.first, key, row) || PutIfFree(choice.second, key, row)) return true;
    uint64_t bucket = choice.first;
    for (int step = 0; step < kMaxEvictions; ++step) {
      // The victim's slot follows from the key that moves in, so that a chain which returns to a
      // bucket does not turn in a circle, and every run takes the same.
      Bucket& b = buckets_.data()[bucket];
      const int victim = static_cast<int>(MixKey(key + step) >> 62);
      std::swap(b.keys[victim], key);
      std::swap(b.rows[victim], row);
      choice = ChoicesOf(key);
      bucket = choice.first == bucket ? choice.second : choice.first;
      if (PutIfFree(bucket, key, row)) return true;
    }
    return false;
  }

  template <int kSize>
  void FindGroup(const uint64_t* keys, int32_t* rows) const {
    const Bucket* buckets = buckets_.data();
    Choice choice[kSize];
    for (int i = 0; i < kSize; ++i) {
      choice[i] = ChoicesOf(keys[i]);
      __builtin_prefetch(buckets + choice[i].first);
      __builtin_prefetch(buckets + choice[i].second);
    }
    for (int i = 0; i < kSize; ++i) {
      // Branch-free over the eight slots. kEmptyKey meets empty slots, whose rows are -1.
      int32_t row = -1;
      for (const uint64_t bucket : {choice[i].first, choice[i].second}) {
        const Bucket& b = buckets[bucket];
        for (int s = 0; s < kSlots; ++s) row = b.keys[s] == keys[i] ? b.rows[s] : row;
      }
      rows[i] = row;
    }
  }

  Array<Bucket> buckets_;
  uint64_t seed_;
};

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildCuckooCpu(const CoordinateSet& inputs, double load_factor,
                                               const ExecutionContext& context) {
  const int64_t num_buckets =
      std::min(static_cast<int64_t>(static_cast<double>(inputs.size()) / load_factor / kSlots) + 1,
               kMaxBuckets);
  VOXCONV_ASSIGN_OR_RETURN(Array<Bucket> buckets, AllocateArray<Bucket>(num_buckets, context));
  auto table = std::make_unique<CuckooTable>(std::move(buckets), 0);
  for (uint64_t attempt = 0; attempt < kMaxSeeds; ++attempt) {
    table->set_seed(MixKey(attempt));
    if (table->Fill(inputs.rows().host())) return table;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("hash: variant=cuckoo found no place for ", inputs.size(), " rows in ",
                   num_buckets * kSlots, " slots with any of ", kMaxSeeds,
                   " seeds; a lower load_factor than ", load_factor, " would help"));
}

}  // namespace voxconv
