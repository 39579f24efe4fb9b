// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/grid_mapping.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {

PluginDescription GridMapping::Describe() {
  PluginDescription description;
  description.name = "grid";
  description.summary = "an array over all cells of the inputs' bounding box, one access a lookup";
  description.source = "TorchSparse 4.2.1 (collision-free grid), Luo & Lai (planar coordinates)";
  description.options.Enum(
      "storage", {"dense", "bitmap"}, "dense",
      "a row number for every cell, or a bit for every cell and a rank for 64 of them");
  AddCoordsOption(description.options)
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Int("memory_limit_mib", 4096, 1, 1 << 20,
           "largest index to build, in MiB; on the CPU without pages that no voxel lies in");
  return description;
}

absl::Status GridMapping::CheckOptions(const Options& options) {
  const std::string& storage = options.GetEnum("storage");
  if (!PlanarCoords(options) || storage == "dense") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "coords=planar: storage=", storage, " reads interleaved rows only; allowed with dense"));
}

}  // namespace voxconv
