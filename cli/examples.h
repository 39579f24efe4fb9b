// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CLI_EXAMPLES_H_
#define VOXCONV_CLI_EXAMPLES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace voxconv::cli {

// Command lines that --help of the command shows, without "voxconv" in front. None for an unknown
// command.
absl::Span<const absl::string_view> ExamplesOf(absl::string_view command);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_EXAMPLES_H_
