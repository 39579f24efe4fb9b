// SPDX-License-Identifier: Apache-2.0
// Linear probing over a power of two of slots.
//
// The table is a sequence of regions, each a small table of its own in which probing wraps around.
// The high bits of the hash choose the region: rows are first distributed over the regions and
// each region is then filled by one thread, in row order, so that the table is the same for any
// number of threads and a region being filled stays in the L2 cache.
//
// Most lookups of a sparse convolution find nothing (nine of ten in a LiDAR frame). A filter of one
// byte a slot answers these: of a key's home slot, it has one of eight bits set. It is a sixteenth
// of the slots' size and fits caches that they do not.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"

namespace voxconv {
namespace {

// Lookups in flight: enough to cover a cache miss with the work on the others.
constexpr int kGroup = 32;
constexpr int64_t kRowsPerTask = 65536;
// 16,384 slots of 16 bytes are a quarter of a megabyte. Fewer would be filled too unevenly.
constexpr int kRegionBits = 14;

struct Slot {
  uint64_t key;
  int32_t row;
};

class OpenAddressingTable final : public HashTableCpu {
 public:
  OpenAddressingTable(Array<Slot> slots, Array<uint8_t> filter, int region_bits)
      : slots_(std::move(slots)),
        filter_(std::move(filter)),
        shift_(64 - absl::countr_zero(static_cast<uint64_t>(slots_.size()))),
        region_mask_((uint64_t{1} << region_bits) - 1) {}

  int64_t bytes() const override { return slots_.bytes() + filter_.bytes(); }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    const size_t grouped = keys.size() / kGroup * kGroup;
    for (size_t i = 0; i < grouped; i += kGroup) FindGroup<kGroup>(keys.data() + i, rows + i);
    for (size_t i = grouped; i < keys.size(); ++i) FindGroup<1>(keys.data() + i, rows + i);
    return absl::OkStatus();
  }

  uint64_t Home(uint64_t key) const { return MixKey(key) >> shift_; }
  uint64_t Next(uint64_t slot) const {
    return (slot & ~region_mask_) | ((slot + 1) & region_mask_);
  }
  int64_t RegionOf(uint64_t key) const {
    return static_cast<int64_t>(Home(key) / (region_mask_ + 1));
  }
  int64_t num_regions() const { return slots_.size() / region_size(); }
  int64_t region_size() const { return static_cast<int64_t>(region_mask_) + 1; }

  // There must be a free slot in the key's region.
  void Insert(uint64_t key, int32_t row) {
    uint64_t slot = Home(key);
    filter_.data()[slot] |= FilterBit(MixKey(key));
    while (slots_.data()[slot].key != kEmptyKey) slot = Next(slot);
    slots_.data()[slot] = {key, row};
  }
  void ClearRegion(int64_t region) {
    std::fill_n(slots_.data() + region * region_size(), region_size(), Slot{kEmptyKey, -1});
    std::fill_n(filter_.data() + region * region_size(), region_size(), uint8_t{0});
  }

 private:
  // The home slot comes from the hash's high bits, this from its low ones.
  static uint8_t FilterBit(uint64_t hash) { return static_cast<uint8_t>(1u << (hash & 7)); }

  // In three steps, so that memory is fetched ahead of its use: the filter's bytes of all keys;
  // slots of those keys that pass; comparison. kEmptyKey finds at most an empty slot, with row -1.
  template <int kSize>
  void FindGroup(const uint64_t* keys, int32_t* rows) const {
    const Slot* slots = slots_.data();
    uint64_t hash[kSize];
    for (int i = 0; i < kSize; ++i) {
      hash[i] = MixKey(keys[i]);
      __builtin_prefetch(filter_.data() + (hash[i] >> shift_));
    }
    int passed[kSize];
    int num_passed = 0;
    for (int i = 0; i < kSize; ++i) {
      const uint64_t home = hash[i] >> shift_;
      rows[i] = -1;
      passed[num_passed] = i;
      num_passed += (filter_.data()[home] & FilterBit(hash[i])) != 0;
    }
    for (int j = 0; j < num_passed; ++j) __builtin_prefetch(slots + (hash[passed[j]] >> shift_));
    for (int j = 0; j < num_passed; ++j) {
      const int i = passed[j];
      uint64_t slot = hash[i] >> shift_;
      while (slots[slot].key != keys[i] && slots[slot].key != kEmptyKey) slot = Next(slot);
      rows[i] = slots[slot].row;
    }
  }

  Array<Slot> slots_;
  Array<uint8_t> filter_;
  int shift_;
  uint64_t region_mask_;
};

absl::StatusOr<std::unique_ptr<OpenAddressingTable>> MakeTable(int64_t capacity, int region_bits,
                                                               const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Slot> slots, AllocateArray<Slot>(capacity, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> filter, AllocateArray<uint8_t>(capacity, context));
  return std::make_unique<OpenAddressingTable>(std::move(slots), std::move(filter), region_bits);
}

// Row numbers by region, ascending within each: region r has [start[r], start[r + 1]).
struct RowsByRegion {
  Array<int32_t> rows;
  std::vector<int64_t> start;
};

template <typename Rows>
absl::StatusOr<RowsByRegion> Distribute(const OpenAddressingTable& table, const Rows& rows,
                                        int64_t size, const ExecutionContext& context) {
  const int64_t regions = table.num_regions();
  const int64_t tasks = (size + kRowsPerTask - 1) / kRowsPerTask;
  RowsByRegion result;
  VOXCONV_ASSIGN_OR_RETURN(result.rows, AllocateArray<int32_t>(size, context));
  // Grows with the square of the rows: 200 MB for 10^8 of them.
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> positions,
                           AllocateArray<int64_t>(tasks * regions, context));
  int64_t* position = positions.data();
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t* count = position + begin / kRowsPerTask * regions;
    std::fill_n(count, regions, 0);
    for (int64_t row = begin; row < end; ++row) ++count[table.RegionOf(PackKey(rows[row]))];
  });
  int64_t next = 0;
  for (int64_t region = 0; region < regions; ++region) {
    result.start.push_back(next);
    for (int64_t task = 0; task < tasks; ++task) {
      next += std::exchange(position[task * regions + region], next);
    }
  }
  result.start.push_back(next);
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t* to = position + begin / kRowsPerTask * regions;
    for (int64_t row = begin; row < end; ++row) {
      result.rows.data()[to[table.RegionOf(PackKey(rows[row]))]++] = static_cast<int32_t>(row);
    }
  });
  return result;
}

// False if a region would be full: it needs one empty slot to end a search.
template <typename Rows>
absl::StatusOr<bool> FillByRegion(const Rows& rows, int64_t size, OpenAddressingTable& table,
                                  const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const RowsByRegion by_region, Distribute(table, rows, size, context));
  const std::vector<int64_t>& start = by_region.start;
  for (int64_t region = 0; region < table.num_regions(); ++region) {
    if (start[region + 1] - start[region] >= table.region_size()) return false;
  }
  ParallelRanges(context, table.num_regions(), 1, [&](int64_t region, int64_t) {
    table.ClearRegion(region);
    for (int64_t i = start[region]; i < start[region + 1]; ++i) {
      const int32_t row = by_region.rows.data()[i];
      table.Insert(PackKey(rows[row]), row);
    }
  });
  return true;
}

template <typename Rows>
void FillInRowOrder(const Rows& rows, int64_t size, OpenAddressingTable& table) {
  table.ClearRegion(0);
  for (int64_t row = 0; row < size; ++row) {
    table.Insert(PackKey(rows[row]), static_cast<int32_t>(row));
  }
}

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildOpenAddressingCpu(const CoordinateRows& inputs,
                                                       double load_factor,
                                                       const ExecutionContext& context) {
  // At least one slot stays empty, as load_factor < 1; two slots at least, for the hash's shift.
  const auto wanted = static_cast<uint64_t>(static_cast<double>(inputs.size()) / load_factor) + 1;
  const auto capacity = static_cast<int64_t>(absl::bit_ceil(std::max<uint64_t>(wanted, 2)));
  const int capacity_bits = absl::countr_zero(static_cast<uint64_t>(capacity));
  if (capacity_bits > kRegionBits) {
    VOXCONV_ASSIGN_OR_RETURN(auto table, MakeTable(capacity, kRegionBits, context));
    VOXCONV_ASSIGN_OR_RETURN(const bool filled, inputs.Visit([&](const auto rows) {
      return FillByRegion(rows, inputs.size(), *table, context);
    }));
    if (filled) return table;
  }
  VOXCONV_ASSIGN_OR_RETURN(auto table, MakeTable(capacity, capacity_bits, context));
  inputs.Visit([&](const auto rows) { FillInRowOrder(rows, inputs.size(), *table); });
  return table;
}

}  // namespace voxconv
