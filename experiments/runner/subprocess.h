// SPDX-License-Identifier: Apache-2.0
// Runs other programs.
//
// This does not use Boost.Process (1.74 in Debian 12). That library starts a program and captures
// its output, but it does not end the program with its parent and does not pass signals on. The
// system calls for these would remain our code, inside its extension handlers.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_
#define VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/measure/interrupt.h"

namespace voxconv::experiment {

struct ProgramResult {
  int exit_status = 0;  // 127: it cannot be started; 128: a signal ended it
  std::string output;   // standard output, if it was captured
};

// Runs the program argv[0], which is searched in PATH, and waits for its end. The program shares
// this one's standard error, and its standard output unless `capture`.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& argv, bool capture);

// The same, with standard output shared. The program is a process group of its own. The first
// SIGINT is passed on to it, whether it comes from a terminal or was sent to this process alone.
// The second one ends this process and the program.
absl::StatusOr<ProgramResult> RunProgramInterruptibly(const std::vector<std::string>& argv,
                                                      const measure::InterruptGuard& interrupt);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_
