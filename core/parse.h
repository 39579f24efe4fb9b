// SPDX-License-Identifier: Apache-2.0
// Reads values per axis from text.
#ifndef VOXCONV_CORE_PARSE_H_
#define VOXCONV_CORE_PARSE_H_

#include <array>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/types.h"

namespace voxconv {

// All return kInvalidArgument for other texts. The message gives the argument's `name` and its
// value.

// "3", "3,1,3" or "3x1x3". One value stands for all three axes.
absl::StatusOr<Int3> ParseInt3(absl::string_view name, absl::string_view text);
// "0.05" or "0.1,0.1,0.2".
absl::StatusOr<std::array<double, 3>> ParseDouble3(absl::string_view name, absl::string_view text);
// Six integers: the least x, y, z, then the greatest x, y, z. No least value may exceed its
// greatest.
absl::StatusOr<Box> ParseBox(absl::string_view name, absl::string_view text);
// The text of a box as ParseBox reads it. "" without a box.
std::string BoxText(const std::optional<Box>& box);

}  // namespace voxconv

#endif  // VOXCONV_CORE_PARSE_H_
