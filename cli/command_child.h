// SPDX-License-Identifier: Apache-2.0
// Commands that load plugins run in a child process. Code of others can end its process in ways
// that no handler sees, such as _exit(0). The parent reports success only if the child said that
// the command reached its end.
#ifndef VOXCONV_CLI_COMMAND_CHILD_H_
#define VOXCONV_CLI_COMMAND_CHILD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/experiments/runner/line_program.h"

namespace voxconv::cli {

// The program's first argument in such a child. The command follows.
inline constexpr char kChildArgument[] = "--child";

// Starts this program as a child that runs the command `name`. It reports by lines
// (LineProgram::Next): those of TellParent, and what ExitGuard says.
absl::StatusOr<std::unique_ptr<experiment::LineProgram>> StartChild(
    const std::string& name, const std::vector<std::string>& args);

// In the child, before anything else: makes TellParent and ExitGuard write to the parent. An error
// if this process is no such child.
absl::Status BeginChild();
bool IsChild();
// In the child: writes a line to the parent. Elsewhere it does nothing.
void TellParent(absl::string_view line);
// In the child: tells that the command ended with this exit code. Its last line.
void TellEndOfCommand(int exit_code);
// Whether a child's line tells this, with the exit code.
bool IsEndOfCommand(absl::string_view line, int& exit_code);

// Whether the arguments or the environment name plugins.
bool LoadsPlugins(const std::vector<std::string>& args);

// Runs the command in a child, which shares the standard streams and the terminal. Returns its exit
// code, or 1 with an error on standard error if the child ends before the command does. Signals
// that ask this process to end are passed on. A signal that ends the child ends this process, too.
int RunInChild(const std::string& name, const std::vector<std::string>& args);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_COMMAND_CHILD_H_
