// The dataflow candidates of one shape, checked and timed.
#ifndef VOXCONV_TUNE_SHAPE_TUNER_H_
#define VOXCONV_TUNE_SHAPE_TUNER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/kernel_map.h"
#include "networks/tuning.h"
#include "tune/gate.h"
#include "tune/search.h"

namespace voxconv::tune {

// What a layer reads of a map, and how that is made. Two readings that are Same share what was
// made.
struct MapReading {
  // Of `dataflow`, a plugin of this name, in a layer of this shape.
  static MapReading Of(const std::string& plugin, std::shared_ptr<const Dataflow> dataflow,
                       const ConvShape& shape);
  // The map as pairs, as a pooling reads it.
  static MapReading Pairs() { return {}; }

  bool Same(const MapReading& other) const { return plugin == other.plugin && need == other.need; }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Make(const KernelMap& map,
                                                          const ExecutionContext& context) const;

  std::string plugin;  // whose layout it is; empty: none's, so that all plugins share it
  MapNeed need;
  std::shared_ptr<const Dataflow> dataflow;  // null where the form is all that is needed
  ConvShape shape;
};

// One kernel map in all readings that were asked for.
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
  double plan_ms = 0;  // of the plan that all layers of the shape share
};

// Tries the candidates of `setup`, then its grids from the best of their plugin so far. `layer`
// names the shape in messages. Those that fail their check go to `rejected` and are not timed.
absl::StatusOr<std::vector<TimedDataflow>> TuneShape(const SearchSetup& setup,
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, PreparedMaps& maps,
                                                     std::vector<Rejected>& rejected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_SHAPE_TUNER_H_
