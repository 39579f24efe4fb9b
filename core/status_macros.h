// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CORE_STATUS_MACROS_H_
#define VOXCONV_CORE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// The error with `place`, such as a file or an option, before its message.
inline absl::Status StatusAt(absl::string_view place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

}  // namespace voxconv

// Returns from the calling function if `expression`, an absl::Status, is an error.
#define VOXCONV_RETURN_IF_ERROR(expression)                                 \
  do {                                                                      \
    if (absl::Status voxconv_status = (expression); !voxconv_status.ok()) { \
      return voxconv_status;                                                \
    }                                                                       \
  } while (false)

#define VOXCONV_STATUS_CONCAT_INNER(a, b) a##b
#define VOXCONV_STATUS_CONCAT(a, b) VOXCONV_STATUS_CONCAT_INNER(a, b)

// VOXCONV_ASSIGN_OR_RETURN(auto x, F()): x = *F(), or returns F's error.
#define VOXCONV_ASSIGN_OR_RETURN(lhs, expression) \
  VOXCONV_ASSIGN_OR_RETURN_IMPL(VOXCONV_STATUS_CONCAT(voxconv_or_, __LINE__), lhs, expression)
#define VOXCONV_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return std::move(result).status();         \
  lhs = *std::move(result)

#endif  // VOXCONV_CORE_STATUS_MACROS_H_
