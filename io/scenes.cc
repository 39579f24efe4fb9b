// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/scenes.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/io/scene_makers.h"
#include "voxconv/io/scene_spec.h"

namespace voxconv {
namespace {

using io_internal::MakeBlocks;
using io_internal::MakeIsolated;
using io_internal::MakeLidar;
using io_internal::MakeRoom;
using io_internal::MakeSphere;
using io_internal::MakeTorus;
using io_internal::MakeUniform;

struct SceneEntry {
  SceneInfo info;
  absl::StatusOr<Scene> (*make)(const SceneSpec&);
};

SceneParam SeedParam() { return {"seed", 0, 0, 4294967295.0, true, "of every random choice"}; }

SceneParam ChannelsParam() {
  return {"channels", 4, 1, 1024, true, "features a voxel, in [-1, 1)"};
}

std::vector<SceneParam> ObjectParams() {
  return {{"n", 100'000, 1, 2e7, true, "points"}, SeedParam()};
}

const std::vector<SceneEntry>& Entries() {
  static const auto* entries = new std::vector<SceneEntry>{
      {{"lidar64",
        "spinning LiDAR in a street of walls, cars, poles and trees; metres",
        false,
        {{"beams", 64, 1, 128, true, "laser beams, +2 to -24.8 degrees"},
         {"azimuths", 2000, 8, 8192, true, "firings a revolution"},
         {"sweeps", 1, 1, 10, true, "revolutions merged in the last one's frame; adds dt"},
         SeedParam()}},
       MakeLidar},
      {{"room",
        "furnished room, 4 x 3 x 2.5 m, sampled on its surfaces; metres",
        false,
        {{"spacing", 0.01, 0.005, 1, false, "metres between samples"}, SeedParam()}},
       MakeRoom},
      {{"sphere", "surface of the unit sphere, with normals", false, ObjectParams()}, MakeSphere},
      {{"torus", "surface of a torus in the unit sphere, with normals", false, ObjectParams()},
       MakeTorus},
      {{"uniform",
        "n distinct voxels, uniform in a cube",
        true,
        {{"n", 100'000, 1, 2e7, true, "voxels"},
         {"box", 400, 1, 131072, true, "voxels along an edge of the cube"},
         ChannelsParam(),
         SeedParam()}},
       MakeUniform},
      {{"isolated",
        "n voxels of which no two are neighbours in 3 x 3 x 3",
        true,
        {{"n", 100'000, 1, 2e7, true, "voxels"}, ChannelsParam(), SeedParam()}},
       MakeIsolated},
      {{"blocks",
        "n full cubes that do not touch: n (3 edge - 2)^3 neighbour pairs in 3 x 3 x 3",
        true,
        {{"n", 100, 1, 1e6, true, "cubes"},
         {"edge", 10, 1, 256, true, "voxels along an edge of a cube"},
         ChannelsParam(),
         SeedParam()}},
       MakeBlocks},
  };
  return *entries;
}

}  // namespace

const std::vector<SceneInfo>& ListScenes() {
  static const auto* infos = [] {
    auto* out = new std::vector<SceneInfo>;
    for (const SceneEntry& entry : Entries()) out->push_back(entry.info);
    return out;
  }();
  return *infos;
}

absl::StatusOr<Scene> MakeScene(absl::string_view spec) {
  const absl::StatusOr<SceneSpec> parsed = ParseSceneSpec(spec);
  if (!parsed.ok()) return parsed.status();
  for (const SceneEntry& entry : Entries()) {
    if (entry.info.name == parsed->name) return entry.make(*parsed);
  }
  return absl::InternalError(absl::StrCat("scene:", parsed->name, " has no maker"));
}

}  // namespace voxconv
