// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

#include <algorithm>

namespace voxconv {
namespace {

std::vector<FgmsLaunch> Batches(std::vector<int32_t> offsets, absl::Span<const int64_t> size) {
  std::stable_sort(offsets.begin(), offsets.end(),
                   [&](int32_t a, int32_t b) { return size[a] > size[b]; });
  std::vector<FgmsLaunch> launches;
  int64_t largest = 0;
  for (int32_t k : offsets) {
    if (launches.empty() || 2 * size[k] <= largest) {
      largest = size[k];
      launches.emplace_back();
    }
    launches.back().offsets.push_back(k);
    launches.back().padded_rows.push_back(largest);
  }
  for (FgmsLaunch& launch : launches) std::sort(launch.offsets.begin(), launch.offsets.end());
  return launches;
}

}  // namespace

std::vector<FgmsLaunch> ScheduleFgms(FgmsFusion fusion, absl::Span<const int64_t> offset_ptr) {
  std::vector<int64_t> size(offset_ptr.size() - 1);
  std::vector<int32_t> offsets;  // with pairs
  for (size_t k = 0; k < size.size(); ++k) {
    size[k] = offset_ptr[k + 1] - offset_ptr[k];
    if (size[k] > 0) offsets.push_back(static_cast<int32_t>(k));
  }
  if (fusion == FgmsFusion::kBatched) return Batches(std::move(offsets), size);

  std::vector<FgmsLaunch> launches;
  for (int32_t k : offsets) {
    if (fusion == FgmsFusion::kSeparate || launches.empty()) launches.emplace_back();
    launches.back().offsets.push_back(k);
    launches.back().padded_rows.push_back(size[k]);
  }
  return launches;
}

}  // namespace voxconv
