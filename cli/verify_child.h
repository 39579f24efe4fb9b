// SPDX-License-Identifier: Apache-2.0
// Cases of strangers' plugins run in a child process. A case that ends the process, or that does
// not end, fails; the cases after it run in another child.
#ifndef VOXCONV_CLI_VERIFY_CHILD_H_
#define VOXCONV_CLI_VERIFY_CHILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/cli/verify_report.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::cli {

// Begins the first argument of `verify` in such a child (cli/command_child.h). The number of its
// first case follows.
inline constexpr char kFromCaseArgument[] = "--from-case=";

// Runs the cases that `verify ARGS` selects, in children. The limit of a case is `case_seconds`.
// Prints what becomes of them. Errors of VerifyReport::Finish, and those of the command itself.
absl::Status VerifyInChildren(const std::vector<std::string>& args, double case_seconds,
                              VerifyReport& report);

// In the child: runs the cases from number `from` on, and tells the parent of each.
void RunCasesInChild(const std::vector<verify::Case>& cases, int64_t from,
                     const std::string& device);
// In the child: tells the parent that the command failed before its cases.
void TellError(const absl::Status& error);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_VERIFY_CHILD_H_
