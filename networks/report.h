// SPDX-License-Identifier: Apache-2.0
// What a run did, layer by layer.
#ifndef VOXCONV_NETWORKS_REPORT_H_
#define VOXCONV_NETWORKS_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "voxconv/core/profile.h"

namespace voxconv {

// How a layer got its kernel map.
enum class MapOrigin {
  kNone,        // it has none
  kQueried,     // by a map query
  kTransposed,  // by exchanging inputs and outputs of an earlier map
  kConverted,   // by changing the form of an earlier map, or making a layout of it
  kReused,      // it was there
};

constexpr const char* ToString(MapOrigin origin) {
  switch (origin) {
    case MapOrigin::kNone:
      return "none";
    case MapOrigin::kQueried:
      return "queried";
    case MapOrigin::kTransposed:
      return "transposed";
    case MapOrigin::kConverted:
      return "converted";
    case MapOrigin::kReused:
      return "reused";
  }
  return "?";
}

struct LayerReport {
  std::string name;
  std::string op;
  std::string fused_into;  // the layer that did this one's work as it stored; empty: none
  std::string geometry;    // convolutions and pooling, else empty
  int64_t c_in = 0, c_out = 0;
  int64_t n_in = 0, n_out = 0;
  // Pairs of the map, in all and per kernel offset; 0 and empty if they were not counted.
  int64_t pairs = 0;
  std::vector<int64_t> map_sizes;
  std::string mapping;  // canonical specs; empty where no plugin ran
  std::string dataflow;
  std::string output_coords;
  std::string kernel;  // DataflowPlan::kernel of the forward pass
  MapOrigin map_origin = MapOrigin::kNone;
  Profile profile;  // stage times and counters of this layer alone
};

struct RunReport {
  // In the graph's order, without the input; empty if stages were not profiled.
  std::vector<LayerReport> layers;
  Profile total;
  int64_t indices_built = 0;
  int64_t maps_queried = 0;
  int64_t maps_transposed = 0;
  int64_t maps_converted = 0;  // changes of form, and layouts that dataflows made
  // The most bytes that were held at once. The workspace is in total.counters. Maps are measured
  // only if stages are profiled.
  int64_t peak_feature_bytes = 0;
  int64_t peak_map_bytes = 0;
  int64_t parameter_bytes = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_REPORT_H_
