// SPDX-License-Identifier: Apache-2.0
// What dataflows have made of one kernel map, kept for the next layer or pass.
#ifndef VOXCONV_CORE_PREPARED_MAPS_H_
#define VOXCONV_CORE_PREPARED_MAPS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/dataflow.h"

namespace voxconv {

// Prepared maps and plans of one kernel map, on one stream. Each is made once: layers and passes
// with equal needs share a prepared map, and layers of equal shapes share a plan. Must not outlive
// the backend. Thread-safe.
class PreparedMaps {
 public:
  struct Prepared {
    std::shared_ptr<const PreparedMap> map;
    std::shared_ptr<const DataflowPlan> plan;
  };

  // For one pass. `map` and the context's stream must be those of all other calls. Dataflows that
  // do not do the same must have different `spec`s. What is not there yet is made by PrepareMap and
  // Dataflow::Plan, whose stream behaviour and errors this function has. O(entries).
  absl::StatusOr<Prepared> Get(absl::string_view spec, const Dataflow& dataflow, Pass pass,
                               const ConvShape& shape, const KernelMap& map,
                               const ExecutionContext& context);

  // Bytes of all prepared maps. Arrays that they share with each other or with the kernel map count
  // each time.
  int64_t bytes() const;

 private:
  struct Map {
    std::string spec;
    MapNeed need;
    std::shared_ptr<const PreparedMap> map;
  };
  struct Plan {
    std::string spec;
    Pass pass;
    ConvShape shape;
    Prepared prepared;
  };

  absl::StatusOr<std::shared_ptr<const PreparedMap>> GetMap(absl::string_view spec,
                                                            const Dataflow& dataflow, Pass pass,
                                                            const ConvShape& shape,
                                                            const KernelMap& map,
                                                            const ExecutionContext& context);

  mutable std::mutex mutex_;
  std::vector<Map> maps_;    // guarded by mutex_
  std::vector<Plan> plans_;  // guarded by mutex_
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_PREPARED_MAPS_H_
