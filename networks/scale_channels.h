// SPDX-License-Identifier: Apache-2.0
// Channel counts of models of other widths.
#ifndef VOXCONV_NETWORKS_SCALE_CHANNELS_H_
#define VOXCONV_NETWORKS_SCALE_CHANNELS_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

// kInvalidArgument for a width that gives a channel count that is fractional or 0.
inline absl::StatusOr<int64_t> ScaleChannels(int64_t channels, double width) {
  const double scaled = static_cast<double>(channels) * width;
  const double whole = std::round(scaled);
  // Far above any real width, and far below where the cast would overflow.
  constexpr double kMaxChannels = 1 << 20;
  if (!(scaled >= 1.0 && scaled <= kMaxChannels && std::abs(scaled - whole) < 1e-6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("width ", width, ": ", channels, " channels become ", scaled,
                     "; the width must give whole channel counts of 1 or more"));
  }
  return static_cast<int64_t>(whole);
}

template <size_t N>
absl::StatusOr<std::array<int64_t, N>> ScaleAll(std::array<int64_t, N> channels, double width) {
  for (int64_t& c : channels) {
    VOXCONV_ASSIGN_OR_RETURN(c, ScaleChannels(c, width));
  }
  return channels;
}

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_SCALE_CHANNELS_H_
