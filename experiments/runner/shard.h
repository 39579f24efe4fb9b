// SPDX-License-Identifier: Apache-2.0
// Work that several processes, on as many machines, share without talking to each other.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_SHARD_H_
#define VOXCONV_EXPERIMENTS_RUNNER_SHARD_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// One of `count` shards: the items `index`, `index` + `count`, ... Neighbours are much alike, so
// that shards are, too. Each item is in exactly one shard.
struct Shard {
  size_t index = 0, count = 1;

  bool Has(size_t item) const { return item % count == index; }
  template <typename T>
  std::vector<T> Of(std::vector<T> items) const {
    std::vector<T> mine;
    for (size_t i = index; i < items.size(); i += count) mine.push_back(std::move(items[i]));
    return mine;
  }
};

// Reads "I/N" with 1 <= I <= N <= 100000: shard I - 1 of N. kInvalidArgument names `argument`.
absl::StatusOr<Shard> ParseShard(absl::string_view argument, const std::string& text);

}  // namespace voxconv

#endif  // VOXCONV_EXPERIMENTS_RUNNER_SHARD_H_
