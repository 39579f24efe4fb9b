// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/hash/hash_mapping.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

constexpr double kDefaultLoadFactor = 0.5;

}  // namespace

PluginDescription HashMapping::Describe() {
  PluginDescription description;
  description.name = "hash";
  description.summary = "input coordinates in a hash table, one lookup an output row and offset";
  description.source =
      "TorchSparse 4.4 (half the queries), SpConv, Open3D 0.16, MinkowskiEngine 0.5.4, PCEngine, "
      "Luo & Lai (planar coordinates)";
  description.options.Enum(
      "variant",
      {"open_addressing", "bricks", "cuckoo", "bucketed", "minkowski", "torchsparse1", "pcengine",
       "open3d", "std"},
      "open_addressing",
      "the table: linear probing, linear probing of bricks of 2 x 2 x 2 voxels (CUDA only), "
      "two-choice buckets, chains of slabs (CUDA only), "
      "linear probing of slots that lead to the coordinates (MinkowskiEngine's on the GPU), "
      "cuckoo tables of 512 entries and hashes in memory (TorchSparse's 1.4 and 2.0), "
      "linear probing by steps of 97 (PCEngine's release), "
      "open3d::core::HashMap itself on the CPU and its slab table on CUDA, and "
      "std::unordered_map (CPU only)");
  AddCoordsOption(description.options)
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Float("load_factor", kDefaultLoadFactor, 0.05, 0.95,
             "fill of the table at most, of bucketed its chains' first slabs; not torchsparse1, "
             "pcengine, open3d, std");
  description.extra_variants = {
      "variant=open_addressing,load_factor=0.9", "variant=cuckoo,load_factor=0.95",
      "variant=bricks,load_factor=0.95", "variant=bucketed,load_factor=0.95",
      "variant=minkowski,load_factor=0.95"};
  return description;
}

absl::Status HashMapping::CheckOptions(const Options& options) {
  const std::string& variant = options.GetEnum("variant");
  const std::string& coords = options.GetEnum("coords");
  if (coords != "interleaved" && variant != "open_addressing") {
    return absl::InvalidArgumentError(
        absl::StrCat("coords=", coords, ": variant=", variant,
                     " reads interleaved rows only; allowed with open_addressing"));
  }
  const double load_factor = options.GetFloat("load_factor");
  const bool has_none =
      variant == "torchsparse1" || variant == "pcengine" || variant == "open3d" || variant == "std";
  if (load_factor != kDefaultLoadFactor && has_none) {
    return absl::InvalidArgumentError(absl::StrCat(
        "load_factor=", load_factor, ": variant=", variant,
        " has none; allowed with open_addressing, bricks, cuckoo, bucketed and minkowski"));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
