// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/perfect_hash/perfect_hash_mapping.h"

#include <utility>

namespace voxconv {

PluginDescription PerfectHashMapping::Describe() {
  PluginDescription description;
  description.name = "perfect_hash";
  description.summary = "perfect spatial hashing: tables H, Phi, T without collisions";
  description.source =
      "H-CNN, Section 3 and Algorithm 1; construction after Lefebvre and Hoppe (2006)";
  description.options
      .Enum("build", {"host", "device"}, "host",
            "where the tables are constructed: one bucket after the other as in the paper, or many "
            "at once (CUDA only)")
      .Enum("map", {"built", "lookup"}, "built",
            "built: a query finds all neighbours; lookup: a dataflow finds them when it reads "
            "them, as in the paper's Algorithm 1, and there is no kernel map in memory")
      .Float("load", 1, 0.1, 1,
             "voxels per slot to aim at; 1 takes the least table that holds a sample's voxels")
      .Int("max_retries", 24, 0, 1000,
           "further tries with larger tables where the construction fails")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  description.extra_variants = {"load=0.5"};
  return description;
}

absl::Status PerfectHashMapping::Check(const Options& options) {
  if (options.GetEnum("map") != "lookup" || !options.GetBool("symmetric")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "perfect_hash: symmetric=true with map=lookup: only a map that is built has pairs to mirror; "
      "symmetric=false is allowed");
}

PerfectHashMapping::PerfectHashMapping(Options options)
    : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {}

}  // namespace voxconv
