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
  description.source =
      "TorchSparse 4.4 (collision-free grid), Luo & Lai (planar coordinates; two-stage "
      "table; rules of SpConv 1.x)";
  description.options.Enum(
      "storage", {"dense", "bitmap", "rules", "two_stage"}, "dense",
      "a row number for every cell; a bit for every cell and a rank for 64 of them; a row number "
      "for every cell of the outputs, to which the inputs write their pairs (SpConv 1.x); or as "
      "dense, but in strided layers as rules, by a table of each input's outputs (Luo & Lai)");
  AddCoordsOption(description.options)
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Int("memory_limit_mib", 4096, 1, 1 << 20,
           "largest index to build, in MiB; on the CPU without pages that no voxel lies in");
  return description;
}

absl::Status GridMapping::CheckOptions(const Options& options) {
  const std::string& storage = options.GetEnum("storage");
  if (storage == "rules" && options.GetBool("symmetric")) {
    return absl::InvalidArgumentError(
        "symmetric=true: storage=rules writes every pair where it finds it; allowed with dense, "
        "bitmap and two_stage");
  }
  const std::string& coords = options.GetEnum("coords");
  if (coords == "interleaved" || storage == "dense" || storage == "two_stage") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("coords=", coords, ": storage=", storage,
                   " reads interleaved rows only; allowed with dense and two_stage"));
}

}  // namespace voxconv
