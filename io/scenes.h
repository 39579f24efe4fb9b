// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_SCENES_H_
#define VOXCONV_IO_SCENES_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

// Seeded synthetic inputs, named by a spec "scene:NAME?key=value&key=value". The same spec gives
// the same bits on every platform. The points of a point scene are voxelised like those of a file.
// A voxel scene consists of voxels, and has no voxel size. Points and voxels come in the order in
// which the scene makes them: returns of a LiDAR firing after firing, voxels as they are drawn.

struct SceneParam {
  std::string name;
  double default_value = 0;
  double min = 0;  // both ends allowed
  double max = 0;
  bool integer = false;
  std::string help;  // with the unit
};

struct SceneInfo {
  std::string name;
  std::string summary;
  bool makes_voxels = false;
  std::vector<SceneParam> params;
};

// All scenes, in a fixed order, for help texts.
const std::vector<SceneInfo>& ListScenes();

using Scene = std::variant<PointCloud, VoxelizedCloud>;

// Whether `input` is meant as a scene ("scene:…") and not as a path.
bool IsSceneSpec(absl::string_view input);

// Makes a scene in host memory. kNotFound for an unknown name or key; the message lists the known
// ones. kInvalidArgument for wrong syntax, and for a value outside its range.
absl::StatusOr<Scene> MakeScene(absl::string_view spec);

}  // namespace voxconv

#endif  // VOXCONV_IO_SCENES_H_
