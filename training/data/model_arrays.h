// SPDX-License-Identifier: Apache-2.0
// The arrays of .npz files that hold many models one after the other (training/data/dataset.h).
// Messages name the array.
#ifndef VOXCONV_TRAINING_DATA_MODEL_ARRAYS_H_
#define VOXCONV_TRAINING_DATA_MODEL_ARRAYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/io/npy.h"

namespace voxconv {

using ModelClasses = std::vector<std::string>;

// The array `name`, of the shape [n, 3].
absl::StatusOr<const NpyArray*> FindModelRows(const NpzArrays& arrays, const std::string& name);

// The array `name`, of the shape [n].
absl::StatusOr<std::vector<int32_t>> ReadModelLabels(const NpzArrays& arrays,
                                                     const std::string& name);

// The prefix sums `name`: they ascend from 0 to the rows of the array `rows_name`, with one entry
// more than the array `labels_name` has.
absl::StatusOr<std::vector<int64_t>> ReadModelEnds(const NpzArrays& arrays, const std::string& name,
                                                   const std::string& rows_name, int64_t rows,
                                                   const std::string& labels_name);

// Where an .npz file has no class_names, its labels are less than this.
inline constexpr int32_t kMostUnnamedClasses = 4096;

// The array class_names of the file, or "class 0", "class 1", ... up to the greatest label of both
// splits. `labels` are those of `split`. Refuses a label that has no name, one from
// kMostUnnamedClasses on, and a name that two classes have. Messages begin with the path.
absl::StatusOr<ModelClasses> ReadModelClasses(const std::string& path, const std::string& split,
                                              absl::Span<const int32_t> labels);

// Refuses a name that two classes have.
absl::Status CheckClassNames(const ModelClasses& names);

// Refuses a label below `least` or from `classes` on; the message gives the array, the value and
// its place.
absl::Status CheckLabels(absl::Span<const int32_t> labels, int32_t least, int64_t classes,
                         absl::string_view array);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_MODEL_ARRAYS_H_
