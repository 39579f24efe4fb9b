// SPDX-License-Identifier: Apache-2.0
// Checks and times the dataflow candidates of one shape.
#ifndef VOXCONV_TUNE_SHAPE_TUNER_H_
#define VOXCONV_TUNE_SHAPE_TUNER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/networks/tuning.h"
#include "voxconv/tune/gate.h"
#include "voxconv/tune/search.h"

namespace voxconv::tune {

// What a layer reads of a map, and how that is made. Readings that are Same share one prepared map.
struct MapReading {
  // What `dataflow`, whose plugin is called `plugin`, reads in the forward pass of a layer of this
  // shape.
  static MapReading Of(const std::string& plugin, std::shared_ptr<const Dataflow> dataflow,
                       const ConvShape& shape);
  // The map as pairs, as a pooling reads it.
  static MapReading Pairs() { return {}; }

  bool Same(const MapReading& other) const { return plugin == other.plugin && need == other.need; }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Make(const KernelMap& map,
                                                          const ExecutionContext& context) const;

  std::string plugin;  // whose layout it is; empty: a form, which all plugins share
  MapNeed need;
  std::shared_ptr<const Dataflow> dataflow;  // null if only the form is needed
  ConvShape shape;
};

// One kernel map, and the prepared maps of all readings that were asked for. Owns them.
class PreparedMaps {
 public:
  PreparedMaps(KernelMap map, const ExecutionContext& context)
      : context_(context), map_(std::move(map)) {}
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Get(const MapReading& reading);
  const KernelMap& map() const { return map_; }

 private:
  ExecutionContext context_;
  KernelMap map_;
  std::vector<std::pair<MapReading, std::shared_ptr<const PreparedMap>>> made_;
};

struct TimedDataflow {
  std::string spec;
  MapReading reading;
  double ms = kNoTime;
  double plan_ms = 0;    // of the plan that all layers of the shape share
  bool checked = false;  // its output is that of the trusted dataflow; what is not may not be taken
};

// Tries the candidates of `setup`, and then its grids around the best candidate of their plugin.
// `values` have the precision of `setup`. `layer` names the shape in messages. Candidates that read
// the same of a map are checked from the cheapest on, until one passes (CostOf in
// networks/tuning.h). No other can be chosen. Candidates that fail go to `rejected` and are not
// returned.
absl::StatusOr<std::vector<TimedDataflow>> TuneShape(const SearchSetup& setup,
                                                     const FeatureValues& values,
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, PreparedMaps& maps,
                                                     std::vector<Rejected>& rejected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_SHAPE_TUNER_H_
