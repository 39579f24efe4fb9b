// SPDX-License-Identifier: Apache-2.0
// Times the mapping candidates over one coordinate set, and the dataflow candidates of its layers.
#ifndef VOXCONV_TUNE_INDEX_TUNER_H_
#define VOXCONV_TUNE_INDEX_TUNER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/networks/tuning.h"
#include "voxconv/tune/search.h"
#include "voxconv/tune/shape_tuner.h"

namespace voxconv::tune {

// The times of a group. Entries have the order of IndexGroup.
struct IndexTimes {
  std::vector<std::string> mappings;
  IndexCosts costs;
  // [map][shape in order of ShapeGroup]
  std::vector<std::vector<std::vector<TimedDataflow>>> dataflows;
};

// Measures one group. `coordinates`: all sets of the network. `step` is called after the queries of
// each map and after each shape; its error ends the search. Candidates that fail go to `rejected`.
absl::StatusOr<IndexTimes> TuneIndex(const SearchSetup& setup, const FeatureValues& values,
                                     const IndexGroup& group,
                                     absl::Span<const CoordinateSetPtr> coordinates,
                                     const std::function<absl::Status()>& step,
                                     std::vector<Rejected>& rejected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_INDEX_TUNER_H_
