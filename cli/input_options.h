// SPDX-License-Identifier: Apache-2.0
// How a command names its point cloud: a file or a scene, and how it is voxelised.
#ifndef VOXCONV_CLI_INPUT_OPTIONS_H_
#define VOXCONV_CLI_INPUT_OPTIONS_H_

#include <array>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/parse.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/npy.h"

namespace voxconv::cli {

// --input, --voxel-size, --origin, --fields, --dtype-in and the rest of io/load_input.h.
po::options_description InputOptions();

// The help of --npz-limit-mib, and its value. Commands that read arrays have it, too.
inline constexpr char kNpzLimitHelp[] =
    "what all arrays of a compressed .npz file may take when unpacked, in MiB";
absl::StatusOr<NpzOptions> ParseNpzLimit(const po::variables_map& values);

// The help of --range, which commands with several inputs have, too.
inline constexpr char kRangeHelp[] =
    "cut the input to this part before it is voxelised: xmin,ymin,zmin,xmax,ymax,zmax in the "
    "cloud's unit; the greatest values are excluded; the unit of voxel inputs is the voxel";

// The help of --order, and its value. Commands with inputs of their own have it, too.
inline constexpr char kOrderHelp[] =
    "order of the rows: scan, in which a voxel's first point decides, or the order of a file or "
    "scene of voxels; sorted by batch, x, y, z; shuffled; morton, along the Z-order curve";
absl::StatusOr<RowOrder> ParseOrderOption(const po::variables_map& values);

// "64,64" or "64x64": input and output channels of a layer, each 1 .. 65536.
struct LayerChannels {
  int64_t in = 0, out = 0;
};
absl::StatusOr<LayerChannels> ParseLayerChannels(const std::string& text);

// Says which features of the input a network leaves out, or how many it fills in.
void PrintChannels(const VoxelizedCloud& cloud, int64_t channels, std::ostream& say = std::cout);

// Two lines: how many points and voxels the input has, and the order of its rows.
void PrintCounts(const VoxelizedCloud& cloud);

absl::StatusOr<LoadOptions> ParseLoadOptions(const po::variables_map& values);
absl::StatusOr<VoxelizedCloud> LoadInput(const po::variables_map& values);

// An error if --rule is given and the layer has no rule.
absl::Status CheckRuleOption(const po::variables_map& values, ConvKind kind);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_INPUT_OPTIONS_H_
