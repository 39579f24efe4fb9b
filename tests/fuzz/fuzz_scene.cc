// SPDX-License-Identifier: Apache-2.0
// A scene's spec. Only small voxel scenes are made: a fuzzer finds large ones at once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "voxconv/io/scene_spec.h"
#include "voxconv/io/scenes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<voxconv::SceneSpec> spec = voxconv::ParseSceneSpec(text);
  if (!spec.ok()) return 0;
  if (!voxconv::IsSceneSpec(text)) std::abort();
  const bool small = spec->values.count("channels") != 0 && spec->Real("n") <= 100 &&
                     spec->Real("channels") <= 8 &&
                     (spec->values.count("edge") == 0 || spec->Real("edge") <= 8);
  if (small) (void)voxconv::MakeScene(text);
  return 0;
}
