// SPDX-License-Identifier: Apache-2.0
// `voxconv experiment --merge`: result directories of several runs as one.
#ifndef VOXCONV_CLI_EXPERIMENT_MERGE_H_
#define VOXCONV_CLI_EXPERIMENT_MERGE_H_

#include "absl/status/status.h"
#include "voxconv/cli/session.h"

namespace voxconv::cli {

// Merges the directories of --merge into --out and prints what became of their lines.
// kInvalidArgument for any other option that is given.
absl::Status MergeExperiments(const po::variables_map& values);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_EXPERIMENT_MERGE_H_
