// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/plan_option.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "voxconv/core/parse.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::cli {

measure::PlanKey KeyOf(const PlanUse& use) {
  return {.backend = use.backend.kind(),
          .device = use.backend.DeviceName(),
          .network = use.network,
          .width = use.model.width,
          .grid = BoxText(use.model.grid),
          .precision = use.precision,
          .input = measure::Classify(measure::MeasureDensity(use.cloud.coords))};
}

absl::StatusOr<measure::Configuration> LoadPlan(const std::string& path, const PlanUse& use,
                                                const Registry& registry) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<measure::TunedPlan> plans, measure::ReadPlans(path));
  const measure::PlanKey key = KeyOf(use);
  const absl::StatusOr<measure::FoundPlan> found = measure::FindPlan(plans, key);
  if (!found.ok()) return StatusAt(path, found.status());
  if (found->other_input_class) {
    std::cout << path << ": tuned for " << measure::ToString(found->plan->key.input)
              << "; this input has " << measure::ToString(key.input) << "\n";
  }
  const auto resolved = measure::Resolve(measure::ToConfiguration(*found->plan), registry);
  if (!resolved.ok()) return StatusAt(path, resolved.status());
  return resolved;
}

}  // namespace voxconv::cli
