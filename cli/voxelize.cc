// SPDX-License-Identifier: Apache-2.0
// voxconv voxelize: the voxels of an input as arrays.
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/io/kernel_map_file.h"
#include "voxconv/io/npy.h"

namespace voxconv::cli {

absl::Status RunVoxelize(const std::vector<std::string>& args) {
  po::options_description options = InputOptions();
  options.add_options()("out", po::value<std::string>(),
                        "OUT.npz: gets coords int32 [N, 4], batch, x, y, z, and features float32 "
                        "[N, C]; - is standard output");
  po::positional_options_description positional;
  positional.add("input", 1).add("out", 1);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("voxelize FILE|scene:NAME OUT.npz [OPTIONS]", options, positional, args));
  const std::string out = OutOf(values);
  if (out.empty()) return absl::InvalidArgumentError("OUT.npz is missing: a file for the voxels");
  if (out != kStandardOutput) {
    if (!absl::EndsWith(out, ".npz")) {
      return absl::InvalidArgumentError(
          absl::StrCat("OUT.npz ", out, ": the name must end in .npz"));
    }
    VOXCONV_RETURN_IF_ERROR(CheckOutputs(GivenPaths(values, {"input"}), {{"OUT.npz", out}}));
    VOXCONV_RETURN_IF_ERROR(CheckWriteFile(out));
  }
  StandardOutput output(values);
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInput(values));
  NpzArrays arrays;
  arrays.emplace_back("coords", CoordinatesToArray(cloud.coords));
  if (cloud.channels > 0) {
    arrays.emplace_back("features", MakeNpyArray({cloud.size(), cloud.channels},
                                                 absl::MakeConstSpan(cloud.features)));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, SerializeNpz(arrays));
  VOXCONV_RETURN_IF_ERROR(output.WriteFiles({{out, bytes}}));
  PrintCounts(cloud);
  return absl::OkStatus();
}

}  // namespace voxconv::cli
