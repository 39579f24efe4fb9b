// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/hash/query_keys_cpu.h"

#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 65536;

}  // namespace

absl::StatusOr<QueryKeysCpu> QueryKeysCpu::Create(const MapProblem& problem,
                                                  const CoordinateRows& outputs,
                                                  const ExecutionContext& context) {
  const int64_t size = outputs.size();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(size, context));
  outputs.Visit([&](const auto rows) {
    ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) keys.data()[i] = PackKey(rows[i]);
    });
  });
  return QueryKeysCpu(problem, outputs, std::move(keys));
}

void QueryKeysCpu::Fill(int k, int64_t begin, int64_t end, uint64_t* keys) const {
  const Int3 offset = problem_.geometry.InputOffset(k);
  const uint64_t delta = KeyDelta(offset);
  const uint64_t* output_keys = output_keys_.data() + begin;
  const int64_t size = end - begin;
  for (int64_t i = 0; i < size; ++i) keys[i] = output_keys[i] + delta;
  if (stays_in_range_) return;
  outputs_.Visit([&](const auto rows) {
    for (int64_t i = 0; i < size; ++i) {
      // 64-bit sums: both terms are below 2^18 in size.
      const Coordinate q = rows[begin + i];
      if (!InRange(int64_t{q.x} + offset.x) || !InRange(int64_t{q.y} + offset.y) ||
          !InRange(int64_t{q.z} + offset.z)) {
        keys[i] = kEmptyKey;
      }
    }
  });
}

}  // namespace voxconv
