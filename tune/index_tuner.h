// The mapping candidates over one coordinate set, and the dataflow candidates of the layers there.
#ifndef VOXCONV_TUNE_INDEX_TUNER_H_
#define VOXCONV_TUNE_INDEX_TUNER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "networks/tuning.h"
#include "tune/search.h"
#include "tune/shape_tuner.h"

namespace voxconv::tune {

// What was measured of a group, by position in IndexGroup.
struct IndexTimes {
  std::vector<std::string> mappings;
  IndexCosts costs;
  // [map][shape in order of ShapeGroup]
  std::vector<std::vector<std::vector<TimedDataflow>>> dataflows;
};

// `coordinates`: the sets of the network. `step` is called after each map's queries and each shape.
absl::StatusOr<IndexTimes> TuneIndex(const SearchSetup& setup, const IndexGroup& group,
                                     absl::Span<const CoordinateSetPtr> coordinates,
                                     const std::function<absl::Status()>& step,
                                     std::vector<Rejected>& rejected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_INDEX_TUNER_H_
