// How a command names its point cloud: a file or a scene, and how it is voxelised.
#ifndef VOXCONV_CLI_INPUT_OPTIONS_H_
#define VOXCONV_CLI_INPUT_OPTIONS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/session.h"
#include "core/coordinate_set.h"
#include "core/parse.h"
#include "io/load_input.h"

namespace voxconv::cli {

// --input, --voxel-size, --origin, --fields, --dtype-in and the rest of io/load_input.h.
po::options_description InputOptions();

absl::StatusOr<LoadOptions> ParseLoadOptions(const po::variables_map& values);
absl::StatusOr<VoxelizedCloud> LoadInput(const po::variables_map& values);

// An error if --rule is given and the layer has no rule.
absl::Status CheckRuleOption(const po::variables_map& values, ConvKind kind);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_INPUT_OPTIONS_H_
