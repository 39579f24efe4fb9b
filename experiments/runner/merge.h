// SPDX-License-Identifier: Apache-2.0
// Result directories of several runs of the same experiments, such as shards, as one.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_MERGE_H_
#define VOXCONV_EXPERIMENTS_RUNNER_MERGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace voxconv::experiment {

struct MergeTally {
  int64_t files = 0;       // files of results in `to`
  int64_t cells = 0;       // lines of cells there
  int64_t doubles = 0;     // lines of cells left out: their key has one that is finished
  int64_t unreadable = 0;  // lines left out: a killed program leaves one without an end
};

// Puts the files of results (*.jsonl with a line of kind "experiment") of the directories `from`,
// and those that are in the directory `to` already, into `to`: those of `to` first, then in the
// order of `from`. A key keeps one line: the first that did not fail, or else the last. Each line
// of kind "experiment" is kept once. A file of `to` is replaced in one step, and files of `from`
// are only read. Merging again changes nothing. O(bytes) in time and memory. kNotFound for a
// directory that is missing; kInvalidArgument for a directory without results, and for `to` among
// `from`.
absl::StatusOr<MergeTally> MergeResults(absl::Span<const std::string> from, const std::string& to);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_MERGE_H_
