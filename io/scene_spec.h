// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_SCENE_SPEC_H_
#define VOXCONV_IO_SCENE_SPEC_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/scenes.h"

namespace voxconv {

// A parsed spec: every parameter of the scene has a value within its range.
struct SceneSpec {
  std::string name;
  std::map<std::string, double> values;

  double Real(const std::string& key) const { return values.at(key); }
  int64_t Integer(const std::string& key) const { return static_cast<int64_t>(values.at(key)); }
  uint64_t Seed() const { return static_cast<uint64_t>(values.at("seed")); }
};

// Errors: those of MakeScene.
absl::StatusOr<SceneSpec> ParseSceneSpec(absl::string_view spec);

}  // namespace voxconv

#endif  // VOXCONV_IO_SCENE_SPEC_H_
