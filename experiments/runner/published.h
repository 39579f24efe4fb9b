// The parts of an experiment's file that only the report reads, checked where the rest is.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_
#define VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_

#include <string>
#include <vector>

#include "core/types.h"
#include "experiments/runner/definition.h"
#include "measure/json_reader.h"

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

// What a published figure or a plot may be of.
const std::vector<std::string>& Metrics();

// Reads "published" and "plots" for their errors. Configurations must have been read.
void CheckPublished(JsonReader& reader, const Definition& definition);
void CheckPlots(JsonReader& reader, const Definition& definition);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_PUBLISHED_H_
