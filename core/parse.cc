// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/parse.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace voxconv {
namespace {

// Splits at commas (or, for integers, the x of "3x1x3"); one value stands for all three axes.
std::vector<std::string> SplitPerAxis(absl::string_view text, absl::string_view separators) {
  std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar(separators));
  if (parts.size() == 1) parts = {parts[0], parts[0], parts[0]};
  return parts;
}

absl::Status BadTriple(absl::string_view name, absl::string_view text, absl::string_view kind) {
  return absl::InvalidArgumentError(absl::StrCat(name, " '", text, "': allowed are one ", kind,
                                                 " or three, for x, y, z, as in 2 or 2,2,1"));
}

}  // namespace

absl::StatusOr<Int3> ParseInt3(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = SplitPerAxis(text, ",x");
  Int3 value;
  if (parts.size() != 3) return BadTriple(name, text, "integer");
  for (int axis = 0; axis < 3; ++axis) {
    if (!absl::SimpleAtoi(parts[axis], &value[axis])) return BadTriple(name, text, "integer");
  }
  return value;
}

absl::StatusOr<std::array<double, 3>> ParseDouble3(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = SplitPerAxis(text, ",");
  std::array<double, 3> value;
  if (parts.size() != 3) return BadTriple(name, text, "number");
  for (int axis = 0; axis < 3; ++axis) {
    if (!absl::SimpleAtod(parts[axis], &value[axis])) return BadTriple(name, text, "number");
  }
  return value;
}

absl::StatusOr<Box> ParseBox(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Box box;
  bool ok = parts.size() == 6;
  for (int i = 0; ok && i < 6; ++i) {
    ok = absl::SimpleAtoi(parts[i], i < 3 ? &box.lo[i] : &box.hi[i - 3]);
  }
  if (!ok) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " '", text, "': six integers are needed, the least x, y, z and the greatest"));
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (box.lo[axis] <= box.hi[axis]) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " '", text, "': the least ", box.lo[axis],
                                                   " is past the greatest ", box.hi[axis],
                                                   "; allowed is a box with cells"));
  }
  return box;
}

std::string BoxText(const std::optional<Box>& box) {
  if (!box.has_value()) return "";
  const auto& [lo, hi] = *box;
  return absl::StrJoin({lo[0], lo[1], lo[2], hi[0], hi[1], hi[2]}, ",");
}

}  // namespace voxconv
