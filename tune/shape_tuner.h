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

// One kernel map in as many layouts as are asked for.
class LayoutCache {
 public:
  LayoutCache(KernelMap pairs, const ExecutionContext& context);
  absl::StatusOr<std::shared_ptr<const KernelMap>> Get(const LayoutRequest& request);
  const KernelMap& pairs() const { return *maps_[0].second; }

 private:
  ExecutionContext context_;
  std::vector<std::pair<LayoutRequest, std::shared_ptr<const KernelMap>>> maps_;
};

struct TimedDataflow {
  std::string spec;
  LayoutRequest layout;
  double ms = kNoTime;
  double plan_ms = 0;  // of the plan that all layers of the shape share
};

// Tries the candidates of `setup`, then its grids from the best of their plugin so far. `layer`
// names the shape in messages. Those that fail their check go to `rejected` and are not timed.
absl::StatusOr<std::vector<TimedDataflow>> TuneShape(const SearchSetup& setup,
                                                     const ShapeGroup& shape,
                                                     const std::string& layer, LayoutCache& maps,
                                                     std::vector<Rejected>& rejected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_SHAPE_TUNER_H_
