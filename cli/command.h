// SPDX-License-Identifier: Apache-2.0
// The subcommands of the `voxconv` program.
#ifndef VOXCONV_CLI_COMMAND_H_
#define VOXCONV_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace voxconv::cli {

// A command prints its result to standard output. It returns an error and does not print it. The
// program prints the error as one line and exits with 1, or with 2 if the command is unknown.
struct Command {
  const char* name;
  const char* summary;
  absl::Status (*run)(const std::vector<std::string>& args);
};

absl::Span<const Command> Commands();

absl::Status RunList(const std::vector<std::string>& args);
absl::Status RunInfo(const std::vector<std::string>& args);
absl::Status RunConv(const std::vector<std::string>& args);
absl::Status RunPool(const std::vector<std::string>& args);
absl::Status RunVoxelize(const std::vector<std::string>& args);
absl::Status RunWeights(const std::vector<std::string>& args);
absl::Status RunRun(const std::vector<std::string>& args);
absl::Status RunVerify(const std::vector<std::string>& args);
absl::Status RunAb(const std::vector<std::string>& args);
absl::Status RunBench(const std::vector<std::string>& args);
absl::Status RunExperiment(const std::vector<std::string>& args);
absl::Status WriteReport(const std::vector<std::string>& args);
absl::Status RunTune(const std::vector<std::string>& args);
absl::Status RunTrain(const std::vector<std::string>& args);
absl::Status RunCompletion(const std::vector<std::string>& args);
absl::Status RunView(const std::vector<std::string>& args);
absl::Status RunEval(const std::vector<std::string>& args);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_COMMAND_H_
