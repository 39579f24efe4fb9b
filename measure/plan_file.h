// SPDX-License-Identifier: Apache-2.0
// Tuned plans on disk: which mapping and dataflow each layer of a network takes, for which device,
// network, dtype and class of inputs that was measured, and the times behind it.
#ifndef VOXCONV_MEASURE_PLAN_FILE_H_
#define VOXCONV_MEASURE_PLAN_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/types.h"
#include "voxconv/measure/input_class.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/networks/planner.h"

namespace voxconv::measure {

// Raised when a reader of the version before could misread the file.
inline constexpr int kPlanVersion = 1;

struct PlanKey {
  BackendKind backend = BackendKind::kCpu;
  std::string device;  // Backend::DeviceName
  std::string network;
  double width = 1;
  std::string grid;  // BoxText (core/parse.h)
  Precision precision = Precision::kF32;
  InputClass input;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct TunedPlan {
  PlanKey key;
  std::vector<PlannedLayer> layers;
  // The whole entry of the file: key and layers, and details for people, such as times and
  // runners-up.
  Json record;
};

// Makes the entry for `key` and `layers`, with `details` after them. If there is details["layers"],
// it has one object for each layer, which is merged into the layer's object.
TunedPlan MakeTunedPlan(const PlanKey& key, std::vector<PlannedLayer> layers, const Json& details);

// {"format": "voxconv-plan", "version", "plans": [...]}. kInvalidArgument names the key: for
// another format or version, a key that is missing or of the wrong type, and a plan without layers.
// Specs are not looked up.
absl::StatusOr<std::vector<TunedPlan>> ParsePlans(absl::string_view json);
// The text of such a file.
std::string FormatPlans(const std::vector<TunedPlan>& plans);

// Reads a plan file. Errors begin with its path.
absl::StatusOr<std::vector<TunedPlan>> ReadPlans(const std::string& path);

// Puts `plan` into the file. It replaces the plan with the same key, or comes after the others.
// Makes the file if it is missing. The file is replaced in one step, under a lock, so that programs
// that save at the same time lose none of their plans. Refuses a file that is not a plan file.
absl::Status SavePlan(const std::string& path, const TunedPlan& plan);
// The same for a plan that took long to find. If it cannot be saved there, for instance because the
// folder has gone, the plan goes into a new file of the current folder or else of the system's
// folder for temporary files. The error then names this file.
absl::Status SavePlanOrElsewhere(const std::string& path, const TunedPlan& plan);
// Checks that SavePlan can write there. Callers ask this before long work.
absl::Status CheckSavePlan(const std::string& path);

struct FoundPlan {
  const TunedPlan* plan = nullptr;
  // The plan is not for the wanted class of inputs, but for the nearest one.
  bool other_input_class = false;
};
// Finds the plan for `wanted`. Network, width, grid, precision, backend and device must agree.
// Among those plans it takes the first one of the nearest input class. kNotFound names the first
// part of the key that no plan agrees with, and lists its values in the file.
absl::StatusOr<FoundPlan> FindPlan(const std::vector<TunedPlan>& plans, const PlanKey& wanted);

// The configuration that commands run: the choice of each layer by its name. Layers that are not in
// the plan take the choice of the first layer.
Configuration ToConfiguration(const TunedPlan& plan);

// A plan as a side of a comparison.
struct PlanSide {
  Configuration configuration;     // resolved
  bool other_input_class = false;  // FoundPlan
  InputClass tuned_for;
  // What was tuned, for result lines: {"plan": PATH, "what": one clause for people, "search",
  // "input", "commit", "other_input_class"}.
  Json tuned;
};
// Reads the plan of the file for `key`. Errors of ReadPlans, FindPlan and Resolve, preceded by the
// path.
absl::StatusOr<PlanSide> LoadPlanSide(const std::string& path, const PlanKey& key,
                                      const Registry& registry);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PLAN_FILE_H_
