// Tuned plans on disk: which mapping and dataflow each layer of a network takes, for which device,
// network, dtype and class of inputs that was measured, and the times behind it.
#ifndef VOXCONV_MEASURE_PLAN_FILE_H_
#define VOXCONV_MEASURE_PLAN_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/types.h"
#include "measure/input_class.h"
#include "measure/preset.h"
#include "measure/result_line.h"
#include "networks/planner.h"

namespace voxconv::measure {

// Raised when a reader of the version before could misread the file.
inline constexpr int kPlanVersion = 1;

struct PlanKey {
  BackendKind backend = BackendKind::kCpu;
  std::string device;  // Backend::DeviceName
  std::string network;
  double width = 1;
  Precision dtype = Precision::kF32;
  InputClass input;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct TunedPlan {
  PlanKey key;
  std::vector<PlannedLayer> layers;
  // The whole entry as it stands in the file: key and layers, and what is there to be read by
  // people, such as times and runners-up.
  Json record;
};

// The entry for `key` and `layers` with `details` after them. details["layers"], if any, has an
// object a layer, which is merged into the layer's.
TunedPlan MakeTunedPlan(const PlanKey& key, std::vector<PlannedLayer> layers, const Json& details);

// {"format": "voxconv-plan", "version", "plans": [...]}. Refused, naming the key: another format or
// version, a key missing or of the wrong type, a plan without layers. Specs are not looked up.
absl::StatusOr<std::vector<TunedPlan>> ParsePlans(absl::string_view json);
std::string FormatPlans(const std::vector<TunedPlan>& plans);

// Errors are preceded by the path.
absl::StatusOr<std::vector<TunedPlan>> ReadPlans(const std::string& path);

// Puts `plan` into the file in place of the one with the same key, or behind the others; makes the
// file if need be. The file is replaced in one step. Refuses to touch a file that holds no plans.
absl::Status SavePlan(const std::string& path, const TunedPlan& plan);
// Whether SavePlan can work there. To be asked before long work.
absl::Status CheckSavePlan(const std::string& path);

struct FoundPlan {
  const TunedPlan* plan = nullptr;
  // Not for the class of the input at hand, but the nearest there is.
  bool other_input_class = false;
};
// The plan for `wanted`: network, width, dtype, backend and device must agree; kNotFound names the
// first that does not, with what there is. Of those that agree the one of the nearest input class;
// the first of equals.
absl::StatusOr<FoundPlan> FindPlan(const std::vector<TunedPlan>& plans, const PlanKey& wanted);

// What commands run: the layers' choices by name, the first layer's for all else.
Configuration ToConfiguration(const TunedPlan& plan);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PLAN_FILE_H_
