// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/radix_sort.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {
namespace {

// 2048 write streams still hit the second-level TLB; more bits would save passes but miss it.
constexpr int kMaxDigitBits = 11;
// Keys per task: its histogram (16 KiB) stays small beside its keys (512 KiB).
constexpr int64_t kKeysPerBlock = 65536;

struct Digit {
  int shift = 0;
  int bits = 0;

  int64_t size() const { return int64_t{1} << bits; }
  int64_t operator()(uint64_t key) const {
    return static_cast<int64_t>(key >> shift & ((uint64_t{1} << bits) - 1));
  }
};

int64_t NumBlocks(int64_t size) { return (size + kKeysPerBlock - 1) / kKeysPerBlock; }

// Bits in which the keys differ; 0 also for keys that ascend already.
uint64_t BitsToSort(const uint64_t* keys, int64_t size, const ExecutionContext& context) {
  struct Summary {
    uint64_t differing = 0;
    bool ascending = true;
  };
  std::vector<Summary> summaries(NumBlocks(size));
  ParallelRanges(context, size, kKeysPerBlock, [&](int64_t begin, int64_t end) {
    Summary summary;
    uint64_t previous = keys[std::max<int64_t>(begin - 1, 0)];
    for (int64_t i = begin; i < end; ++i) {
      summary.differing |= keys[i] ^ keys[0];
      summary.ascending &= previous <= keys[i];
      previous = keys[i];
    }
    summaries[begin / kKeysPerBlock] = summary;
  });
  Summary all;
  for (const Summary& summary : summaries) {
    all.differing |= summary.differing;
    all.ascending &= summary.ascending;
  }
  return all.ascending ? 0 : all.differing;
}

// Cuts each contiguous range of `bits` into digits of nearly equal width.
std::vector<Digit> PlanDigits(uint64_t bits) {
  std::vector<Digit> digits;
  while (bits != 0) {
    int shift = absl::countr_zero(bits);
    int range = absl::countr_one(bits >> shift);
    bits = shift + range == 64 ? 0 : bits >> (shift + range) << (shift + range);
    for (int passes = (range + kMaxDigitBits - 1) / kMaxDigitBits; passes > 0; --passes) {
      const int width = (range + passes - 1) / passes;
      digits.push_back({shift, width});
      shift += width;
      range -= width;
    }
  }
  return digits;
}

// positions[block * digit.size() + d]: where the block's first key of digit d goes.
void ComputePositions(const Digit& digit, const uint64_t* keys, int64_t size, int64_t* positions,
                      const ExecutionContext& context) {
  const int64_t blocks = NumBlocks(size);
  ParallelRanges(context, size, kKeysPerBlock, [&](int64_t begin, int64_t end) {
    int64_t* count = positions + begin / kKeysPerBlock * digit.size();
    std::fill_n(count, digit.size(), 0);
    for (int64_t i = begin; i < end; ++i) ++count[digit(keys[i])];
  });
  int64_t next = 0;
  for (int64_t d = 0; d < digit.size(); ++d) {
    for (int64_t block = 0; block < blocks; ++block) {
      next += std::exchange(positions[block * digit.size() + d], next);
    }
  }
}

absl::Status Sort(Array<uint64_t>& keys, Array<int32_t>* values, const ExecutionContext& context) {
  const int64_t size = keys.size();
  if (size < 2) return absl::OkStatus();
  const std::vector<Digit> digits = PlanDigits(BitsToSort(keys.data(), size, context));
  if (digits.empty()) return absl::OkStatus();

  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> other_keys, AllocateArray<uint64_t>(size, context));
  Array<int32_t> other_values;
  if (values != nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(other_values, AllocateArray<int32_t>(size, context));
  }
  int64_t largest = 0;
  for (const Digit& digit : digits) largest = std::max(largest, digit.size());
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> positions,
                           AllocateArray<int64_t>(NumBlocks(size) * largest, context));
  for (const Digit& digit : digits) {
    const uint64_t* from = keys.data();
    uint64_t* to = other_keys.data();
    const int32_t* from_values = values == nullptr ? nullptr : values->data();
    int32_t* to_values = other_values.data();
    ComputePositions(digit, from, size, positions.data(), context);
    ParallelRanges(context, size, kKeysPerBlock, [&](int64_t begin, int64_t end) {
      int64_t* position = positions.data() + begin / kKeysPerBlock * digit.size();
      if (from_values == nullptr) {
        for (int64_t i = begin; i < end; ++i) to[position[digit(from[i])]++] = from[i];
        return;
      }
      for (int64_t i = begin; i < end; ++i) {
        const int64_t target = position[digit(from[i])]++;
        to[target] = from[i];
        to_values[target] = from_values[i];
      }
    });
    std::swap(keys, other_keys);
    if (values != nullptr) std::swap(*values, other_values);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RadixSort(Array<uint64_t>& keys, const ExecutionContext& context) {
  return Sort(keys, nullptr, context);
}

absl::Status RadixSort(Array<uint64_t>& keys, Array<int32_t>& values,
                       const ExecutionContext& context) {
  VOXCONV_CHECK(keys.size() == values.size());
  return Sort(keys, &values, context);
}

}  // namespace voxconv
