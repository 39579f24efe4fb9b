// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CLI_SUGGEST_H_
#define VOXCONV_CLI_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace voxconv::cli {

// The candidate that differs from `text` by the fewest letters added, removed, changed or exchanged
// with their neighbour. "" if none differs by at most a third of its letters. Of equals the first.
std::string Nearest(absl::string_view text, const std::vector<std::string>& candidates);

// " (did you mean 'X'?)", or "" where there is no such candidate.
std::string DidYouMean(absl::string_view text, const std::vector<std::string>& candidates);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SUGGEST_H_
