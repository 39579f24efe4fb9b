// SPDX-License-Identifier: Apache-2.0
// Commands that run this program again, once for each round.
#ifndef VOXCONV_CLI_SELF_COMMAND_H_
#define VOXCONV_CLI_SELF_COMMAND_H_

#include <string>
#include <vector>

namespace voxconv::cli {

// This program with the command `name` and these arguments.
std::vector<std::string> SelfCommand(const std::string& name, const std::vector<std::string>& args);

// `args` without the option "--NAME VALUE" and "--NAME=VALUE".
std::vector<std::string> WithoutOption(const std::string& name,
                                       const std::vector<std::string>& args);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SELF_COMMAND_H_
