// SPDX-License-Identifier: Apache-2.0
// The command line of both programs.
#ifndef VOXCONV_EXAMPLES_LIBRARY_ARGUMENTS_H_
#define VOXCONV_EXAMPLES_LIBRARY_ARGUMENTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace example {

struct Arguments {
  std::string input = "scene:lidar64?azimuths=500";  // a file, or a scene
  std::string backend = "cpu";                       // or cuda
  std::string mapping = "hash";                      // specs, as in `voxconv run`
  std::string dataflow = "implicit_gemm";
  std::string output_coords = "sort_unique";
};

// "--input FILE --backend cuda ...": every name is followed by its value.
inline absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, std::string*> values = {
      {"--input", &arguments.input},
      {"--backend", &arguments.backend},
      {"--mapping", &arguments.mapping},
      {"--dataflow", &arguments.dataflow},
      {"--output-coords", &arguments.output_coords}};
  for (int i = 1; i < argc; i += 2) {
    const auto value = values.find(argv[i]);
    if (value == values.end() || i + 1 == argc) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument '", argv[i],
                       "': allowed are --input, --backend, --mapping, --dataflow and "
                       "--output-coords, each with a value after it"));
    }
    *value->second = argv[i + 1];
  }
  return arguments;
}

}  // namespace example

#endif  // VOXCONV_EXAMPLES_LIBRARY_ARGUMENTS_H_
