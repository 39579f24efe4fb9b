// SPDX-License-Identifier: Apache-2.0
// Checks the parts of an experiment's file that only the report reads.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_
#define VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "voxconv/core/types.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/measure/json_reader.h"

namespace voxconv::experiment {

using measure::JsonReader;
using measure::RefuseValue;

// Stages that are published as one: "mapping" (coordinates, index, query, conversion), "movement"
// (gather, scatter) and "convolution" (gather, GEMM, scatter or the fused stage).
struct StageGroup {
  const char* name;
  std::vector<Stage> stages;
};
const std::vector<StageGroup>& StageGroups();
// The names of the stages of a group, or of the stage of this name. Empty for another name.
std::vector<std::string> StagesNamed(absl::string_view name);

// The metrics that a published figure or a plot may show.
const std::vector<std::string>& Metrics();

// These check the keys "published" and "plots". Errors go to `reader`. The configurations must have
// been read before.
void CheckPublished(JsonReader& reader, const Definition& definition);
void CheckPlots(JsonReader& reader, const Definition& definition);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_
