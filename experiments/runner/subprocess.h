// Running another program.
//
// Own code in place of Boost.Process (1.74 in Debian 12), which starts a
// program and captures what it prints, but ends no program with its parent and hands no signal on:
// these calls would stay ours, inside its extension handlers.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_
#define VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/interrupt.h"

namespace voxconv::experiment {

struct ProgramResult {
  int exit_status = 0;  // 127: it cannot be started; 128: a signal ended it
  std::string output;   // standard output, if it was captured
};

// Runs argv[0], looked for in PATH, to its end. Standard error is shared, and so is standard output
// unless `capture`.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& argv, bool capture);

// The same with standard output shared, and SIGINT handed on to the program once, whether it came
// from a terminal or for this process alone: the program is a process group of its own. A second
// one ends this process, and the program with it.
absl::StatusOr<ProgramResult> RunProgramInterruptibly(const std::vector<std::string>& argv,
                                                      const measure::InterruptGuard& interrupt);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_SUBPROCESS_H_
