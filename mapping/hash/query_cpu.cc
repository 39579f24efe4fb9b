// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"
#include "voxconv/mapping/hash/query_keys_cpu.h"

namespace voxconv {
namespace {

// Keys and rows of one chunk (6 KiB) stay in the L1 cache beside the slots being looked up.
constexpr int64_t kChunk = 512;

// The first error of concurrent lookups.
class SharedStatus {
 public:
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    status_.Update(status);
  }
  const absl::Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<KernelMap> QueryHashTableCpu(const HashTableCpu& table, const MapProblem& problem,
                                            const CoordinateRows& outputs, bool symmetric,
                                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const QueryKeysCpu query_keys,
                           QueryKeysCpu::Create(problem, outputs, context));
  SharedStatus find_status;
  const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
    uint64_t keys[kChunk];
    int32_t rows[kChunk];
    int64_t count = 0;
    for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
      const int64_t size = std::min(kChunk, end - chunk);
      query_keys.Fill(k, chunk, chunk + size, keys);
      const absl::Status status = table.Find({keys, static_cast<size_t>(size)}, rows);
      if (!status.ok()) {
        find_status.Update(status);
        return count;
      }
      for (int64_t i = 0; i < size; ++i) {  // branch-free: hits are hard to predict
        in[count] = rows[i];
        out[count] = static_cast<int32_t>(chunk + i);
        count += rows[i] >= 0;
      }
    }
    return count;
  };
  absl::StatusOr<KernelMap> map = CollectPairs(problem, symmetric, probe, context);
  VOXCONV_RETURN_IF_ERROR(find_status.status());
  return map;
}

}  // namespace voxconv
