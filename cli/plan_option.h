// SPDX-License-Identifier: Apache-2.0
// How a command names a tuned plan: `run --plan FILE`, `ab --a plan:FILE`.
#ifndef VOXCONV_CLI_PLAN_OPTION_H_
#define VOXCONV_CLI_PLAN_OPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/plan_file.h"
#include "voxconv/measure/preset.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {

// What stands before the path where a configuration is named by one text.
inline constexpr char kPlanPrefix[] = "plan:";

struct PlanUse {
  std::string network;
  ModelOptions model;
  Precision precision = Precision::kF32;
  const VoxelizedCloud& cloud;
  const Backend& backend;
};

measure::PlanKey KeyOf(const PlanUse& use);

// The plan of the file for this use, resolved. Refused, preceded by the path: a file without a plan
// for the network, width, grid, dtype and device. A plan for another class of inputs is taken, and
// a line on standard output says so.
absl::StatusOr<measure::Configuration> LoadPlan(const std::string& path, const PlanUse& use,
                                                const Registry& registry);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_PLAN_OPTION_H_
