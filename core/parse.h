// Values per axis as people write them.
#ifndef VOXCONV_CORE_PARSE_H_
#define VOXCONV_CORE_PARSE_H_

#include <array>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/types.h"

namespace voxconv {

// All name the argument `name` and its value where they refuse it (kInvalidArgument).

// "3", "3,1,3" or "3x1x3". One value stands for all three axes.
absl::StatusOr<Int3> ParseInt3(absl::string_view name, absl::string_view text);
// "0.05" or "0.1,0.1,0.2".
absl::StatusOr<std::array<double, 3>> ParseDouble3(absl::string_view name, absl::string_view text);
// Six integers: the least x, y, z and the greatest. No least value may be past its greatest.
absl::StatusOr<Box> ParseBox(absl::string_view name, absl::string_view text);

}  // namespace voxconv

#endif  // VOXCONV_CORE_PARSE_H_
