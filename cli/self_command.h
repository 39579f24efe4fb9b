// SPDX-License-Identifier: Apache-2.0
// Commands that run this program again, once for each round.
#ifndef VOXCONV_CLI_SELF_COMMAND_H_
#define VOXCONV_CLI_SELF_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace voxconv::cli {

// This program with the command `name` and these arguments.
std::vector<std::string> SelfCommand(const std::string& name, const std::vector<std::string>& args);

// `args` without the option "--NAME VALUE" and "--NAME=VALUE".
std::vector<std::string> WithoutOption(const std::string& name,
                                       const std::vector<std::string>& args);

// The failure of a command whose other process has printed the reason. main() prints no second
// line for it.
absl::Status FailureAlreadyPrinted();
bool IsAlreadyPrinted(const absl::Status& status);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SELF_COMMAND_H_
