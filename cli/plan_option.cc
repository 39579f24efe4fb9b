// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/plan_option.h"

#include <iostream>
#include <utility>

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
  const measure::PlanKey key = KeyOf(use);
  VOXCONV_ASSIGN_OR_RETURN(measure::PlanSide side, measure::LoadPlanSide(path, key, registry));
  if (side.other_input_class) {
    std::cout << path << ": tuned for " << measure::ToString(side.tuned_for) << "; this input has "
              << measure::ToString(key.input) << "\n";
  }
  return std::move(side.configuration);
}

}  // namespace voxconv::cli
