// SPDX-License-Identifier: Apache-2.0
// The baseline: std::unordered_map built and queried plainly, as SpConv's CPU path does.
#include <new>
#include <unordered_map>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/hash_table_cpu.h"

namespace voxconv {
namespace {

class StdTable final : public HashTableCpu {
 public:
  explicit StdTable(absl::Span<const Coordinate> rows) {
    map_.reserve(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      map_.emplace(PackKey(rows[row]), static_cast<int32_t>(row));
    }
  }

  // The nodes (next pointer, key and row) and the array of buckets, without the allocator's share.
  int64_t bytes() const override {
    return static_cast<int64_t>(map_.size() * (sizeof(void*) + sizeof(Map::value_type)) +
                                map_.bucket_count() * sizeof(void*));
  }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto it = map_.find(keys[i]);
      rows[i] = it == map_.end() ? -1 : it->second;
    }
    return absl::OkStatus();
  }

 private:
  using Map = std::unordered_map<uint64_t, int32_t>;
  Map map_;
};

}  // namespace

absl::StatusOr<HashTableCpuPtr> BuildStdCpu(const CoordinateSet& inputs, const ExecutionContext&) {
  try {
    return std::make_unique<StdTable>(inputs.rows().host());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("hash: out of memory for std::unordered_map");
  }
}

}  // namespace voxconv
