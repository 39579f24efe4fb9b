#include "cli/plan_option.h"

#include <iostream>

#include "absl/strings/str_cat.h"

namespace voxconv::cli {

measure::PlanKey KeyOf(const PlanUse& use) {
  return {.backend = use.backend.kind(),
          .device = use.backend.DeviceName(),
          .network = use.network,
          .width = use.width,
          .dtype = use.dtype,
          .input = measure::Classify(measure::MeasureDensity(use.cloud.coords))};
}

absl::StatusOr<measure::Configuration> LoadPlan(const std::string& path, const PlanUse& use,
                                                const Registry& registry) {
  const auto in_file = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<measure::TunedPlan> plans, measure::ReadPlans(path));
  const measure::PlanKey key = KeyOf(use);
  const absl::StatusOr<measure::FoundPlan> found = measure::FindPlan(plans, key);
  if (!found.ok()) return in_file(found.status());
  if (found->other_input_class) {
    std::cout << path << ": tuned for " << measure::ToString(found->plan->key.input)
              << "; this input has " << measure::ToString(key.input) << "\n";
  }
  const auto resolved = measure::Resolve(measure::ToConfiguration(*found->plan), registry);
  if (!resolved.ok()) return in_file(resolved.status());
  return resolved;
}

}  // namespace voxconv::cli
