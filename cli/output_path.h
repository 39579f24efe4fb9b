// Files that a command writes are none that it reads.
#ifndef VOXCONV_CLI_OUTPUT_PATH_H_
#define VOXCONV_CLI_OUTPUT_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/session.h"

namespace voxconv::cli {

// A file and the argument that names it, as in {"--out", "line.jsonl"}.
struct NamedPath {
  std::string argument;
  std::string path;
};

// Refuses an output that is an input or another output, also by another name: one of them would be
// lost.
absl::Status CheckOutputs(const std::vector<NamedPath>& inputs,
                          const std::vector<NamedPath>& outputs);

// Those of the options `names` that are given, a repeated one several times; plan:FILE counts as
// FILE.
std::vector<NamedPath> GivenPaths(const po::variables_map& values,
                                  const std::vector<std::string>& names);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_OUTPUT_PATH_H_
