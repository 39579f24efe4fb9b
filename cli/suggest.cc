// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/suggest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace voxconv::cli {
namespace {

// The optimal string alignment distance (Damerau, 1964).
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Nearest(absl::string_view text, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // the work grows with the product of the lengths
  std::string nearest;
  size_t least = SIZE_MAX;
  if (text.size() > kLongest) return nearest;
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(text, candidate);
    if (distance >= least || 3 * distance > std::max<size_t>(candidate.size(), 3)) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(absl::string_view text, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(text, candidates);
  return nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)");
}

}  // namespace voxconv::cli
