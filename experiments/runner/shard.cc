// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/shard.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv {

absl::StatusOr<Shard> ParseShard(absl::string_view argument, const std::string& text) {
  constexpr size_t kMaxShards = 100000;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  size_t index = 0, count = 0;
  if (absl::SimpleAtoi(parts.first, &index) && absl::SimpleAtoi(parts.second, &count) &&
      index >= 1 && index <= count && count <= kMaxShards) {
    return Shard{index - 1, count};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(argument, " ", text, ": allowed are I/N with 1 <= I <= N <= ", kMaxShards));
}

}  // namespace voxconv
