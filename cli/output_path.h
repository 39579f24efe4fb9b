// SPDX-License-Identifier: Apache-2.0
// Checks that a command does not write a file that it reads.
#ifndef VOXCONV_CLI_OUTPUT_PATH_H_
#define VOXCONV_CLI_OUTPUT_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "voxconv/cli/session.h"

namespace voxconv::cli {

// A file and the argument that names it, as in {"--out", "line.jsonl"}.
struct NamedPath {
  std::string argument;
  std::string path;
};

// An error if an output is the same file as an input or another output, under any name. One of them
// would be lost.
absl::Status CheckOutputs(const std::vector<NamedPath>& inputs,
                          const std::vector<NamedPath>& outputs);

// The paths of those options of `names` that are given. A repeated option has several paths. For
// plan:FILE, the path is FILE.
std::vector<NamedPath> GivenPaths(const po::variables_map& values,
                                  const std::vector<std::string>& names);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_OUTPUT_PATH_H_
