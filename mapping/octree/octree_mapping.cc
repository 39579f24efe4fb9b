// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/octree/octree_mapping.h"

#include <utility>

namespace voxconv {

PluginDescription OctreeMapping::Describe() {
  PluginDescription description;
  description.name = "octree";
  description.summary = "input coordinates in an octree, one descent an output row and offset";
  description.source = "the octrees that H-CNN compares with (O-CNN)";
  description.options
      .Enum("children", {"occupied", "all"}, "occupied",
            "what a node keeps: a mask and the first of the children that have voxels, or all "
            "eight as O-CNN subdivides")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  return description;
}

OctreeMapping::OctreeMapping(Options options)
    : options_(std::move(options)),
      keeps_all_(options_.GetEnum("children") == "all"),
      symmetric_(options_.GetBool("symmetric")) {}

}  // namespace voxconv
