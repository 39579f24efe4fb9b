// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_SCENE_MAKERS_H_
#define VOXCONV_IO_SCENE_MAKERS_H_

#include "absl/status/statusor.h"
#include "voxconv/io/scene_spec.h"
#include "voxconv/io/scenes.h"

namespace voxconv::io_internal {

// One function for each scene. scenes.cc has the table of their names and parameters. Scenes are in
// host memory. Errors of MakeScene.
absl::StatusOr<Scene> MakeLidar(const SceneSpec& spec);
absl::StatusOr<Scene> MakeRoom(const SceneSpec& spec);
absl::StatusOr<Scene> MakeSphere(const SceneSpec& spec);
absl::StatusOr<Scene> MakeTorus(const SceneSpec& spec);
absl::StatusOr<Scene> MakeUniform(const SceneSpec& spec);
absl::StatusOr<Scene> MakeIsolated(const SceneSpec& spec);
absl::StatusOr<Scene> MakeBlocks(const SceneSpec& spec);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_SCENE_MAKERS_H_
