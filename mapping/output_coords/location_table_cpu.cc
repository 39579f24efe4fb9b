// SPDX-License-Identifier: Apache-2.0
// Luo and Lai's down-sampling (location_table_cuda.cu) on the CPU.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kPage = 4096;
// An array that takes more address space than this would need too long to count its pages.
constexpr int kMaxArrayBits = 36;  // of cells: 256 GiB
constexpr uint64_t kNoKey = ~uint64_t{0};

// Bytes of the pages that outputs lie in, of an array of one int32 for each key.
int64_t WrittenBytes(const CandidateRule& rule, const CoordinateSet& inputs,
                     const ExecutionContext& context) {
  constexpr uint64_t kCells = kPage / sizeof(int32_t);
  const CompactKeyFormat format = rule.key_format();
  std::vector<uint64_t> written(((uint64_t{1} << format.total_bits()) / kCells >> 6) + 1);
  const Coordinate* const rows = inputs.rows().data();
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      rule.EachOutput(rows[i], [&](const Coordinate& q) {
        const uint64_t page = format.Pack(q) / kCells;
        const std::atomic_ref<uint64_t> word(written[page / 64]);
        const uint64_t bit = uint64_t{1} << page % 64;
        if ((word.load(std::memory_order_relaxed) & bit) == 0) {
          word.fetch_or(bit, std::memory_order_relaxed);
        }
      });
    }
  });
  int64_t pages = 0;
  for (const uint64_t word : written) pages += absl::popcount(word);
  return pages * kPage;
}

// Which cells have an output, and its place in the list of outputs.
class LocationTable {
 public:
  // An array over all cells if the pages that outputs lie in take at most `max_bytes`; a hash table
  // otherwise. `max_outputs`: the most outputs there can be.
  static absl::StatusOr<LocationTable> Create(const CandidateRule& rule,
                                              const CoordinateSet& inputs, int64_t max_outputs,
                                              int64_t max_bytes, const ExecutionContext& context) {
    LocationTable table;
    const int bits = rule.key_format().total_bits();
    if (bits <= kMaxArrayBits) {
      const int64_t reserved = int64_t{sizeof(int32_t)} << bits;
      const int64_t written = std::min(WrittenBytes(rule, inputs, context), reserved);
      if (written <= max_bytes) {
        VOXCONV_ASSIGN_OR_RETURN(Buffer pages, AsCpu(context).ReservePages(reserved, written));
        table.places_ = Array<int32_t>(std::move(pages), int64_t{1} << bits);
        return table;
      }
    }
    const auto slots = static_cast<int64_t>(
        absl::bit_ceil(2 * static_cast<uint64_t>(std::max<int64_t>(max_outputs, 1))));
    VOXCONV_ASSIGN_OR_RETURN(table.keys_, AllocateArray<uint64_t>(slots, context));
    VOXCONV_ASSIGN_OR_RETURN(table.places_, AllocateArray<int32_t>(slots, context));
    std::fill_n(table.keys_.data(), slots, kNoKey);
    return table;
  }

  // If the cell `key` has no output yet, gives it place `size`, which it adds one to. Returns the
  // place, or -1 if the cell has one. Any number of threads may call this.
  int64_t Add(uint64_t key, std::atomic<int64_t>& size) {
    int32_t* place = nullptr;
    if (keys_.size() == 0) {
      place = places_.data() + key;
      const std::atomic_ref<int32_t> cell(*place);
      if (cell.load(std::memory_order_relaxed) != 0) return -1;
      int32_t none = 0;
      if (!cell.compare_exchange_strong(none, kTaken, std::memory_order_relaxed)) return -1;
    } else {
      const int64_t slot = TakeSlot(key);
      if (slot < 0) return -1;
      place = places_.data() + slot;
    }
    const int64_t added = size.fetch_add(1, std::memory_order_relaxed);
    std::atomic_ref<int32_t>(*place).store(static_cast<int32_t>(added + 1),
                                           std::memory_order_relaxed);
    return added;
  }

 private:
  static constexpr int32_t kTaken = -1;

  // The slot that `key` is written to, or -1 if it is in the table.
  int64_t TakeSlot(uint64_t key) {
    const uint64_t mask = static_cast<uint64_t>(keys_.size()) - 1;
    for (uint64_t slot = MixKey(key) & mask;; slot = (slot + 1) & mask) {
      uint64_t found = kNoKey;
      if (std::atomic_ref<uint64_t>(keys_.data()[slot])
              .compare_exchange_strong(found, key, std::memory_order_relaxed)) {
        return static_cast<int64_t>(slot);
      }
      if (found == key) return -1;
    }
  }

  Array<int32_t> places_;  // of each cell, or of each slot: place + 1
  Array<uint64_t> keys_;   // of each slot; empty: there is an array of cells
};

}  // namespace

absl::StatusOr<Array<uint64_t>> LocationTableKeysCpu(const CandidateRule& rule,
                                                     const CoordinateSet& inputs, int64_t max_bytes,
                                                     const ExecutionContext& context) {
  const CompactKeyFormat format = rule.key_format();
  const int64_t max_outputs = inputs.size() * rule.max_outputs_per_input();
  VOXCONV_ASSIGN_OR_RETURN(LocationTable table,
                           LocationTable::Create(rule, inputs, max_outputs, max_bytes, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> list, AllocateArray<uint64_t>(max_outputs, context));
  std::atomic<int64_t> size = 0;
  const Coordinate* const rows = inputs.rows().data();
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      rule.EachOutput(rows[i], [&](const Coordinate& q) {
        const uint64_t key = format.Pack(q);
        const int64_t place = table.Add(key, size);
        if (place >= 0) list.data()[place] = key;
      });
    }
  });
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(size, context));
  std::copy_n(list.data(), keys.size(), keys.data());
  return keys;
}

}  // namespace voxconv
