// Running another program.
#ifndef VOXCONV_CLI_SUBPROCESS_H_
#define VOXCONV_CLI_SUBPROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace voxconv::cli {

struct ProgramResult {
  int exit_status = 0;  // 127: it cannot be started; 128: a signal ended it
  std::string output;   // standard output, if it was captured
};

// Runs argv[0], looked for in PATH, to its end. Standard error is shared, and so is standard output
// unless `capture`.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& argv, bool capture);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SUBPROCESS_H_
