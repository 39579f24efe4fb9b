// How a command names its point cloud: a file or a scene, and how it is voxelised.
#ifndef VOXCONV_CLI_INPUT_OPTIONS_H_
#define VOXCONV_CLI_INPUT_OPTIONS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/session.h"
#include "core/coordinate_set.h"
#include "io/load_input.h"

namespace voxconv::cli {

// --input, --voxel-size, --origin, --fields, --dtype-in and the rest of io/load_input.h.
po::options_description InputOptions();

absl::StatusOr<LoadOptions> ParseLoadOptions(const po::variables_map& values);
absl::StatusOr<VoxelizedCloud> LoadInput(const po::variables_map& values);

// The cloud's coordinates at tensor stride 1.
absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context);
// Its features with exactly `channels` columns: surplus ones are left out, missing ones are 1.
std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels);

// "3" or "3,1,3" (also with x) for one value per axis.
absl::StatusOr<Int3> ParseInt3(absl::string_view name, absl::string_view text);
absl::StatusOr<std::array<double, 3>> ParseDouble3(absl::string_view name, absl::string_view text);
// Six integers: lo x, y, z, hi x, y, z, no lo past its hi.
absl::StatusOr<Box> ParseBox(absl::string_view name, absl::string_view text);
// Refuses --rule where it is given and the layer has none.
absl::Status CheckRuleOption(const po::variables_map& values, ConvKind kind);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_INPUT_OPTIONS_H_
