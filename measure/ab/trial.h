// SPDX-License-Identifier: Apache-2.0
// What `ab` and `experiment` do with a Work: they verify, measure and describe it.
#ifndef VOXCONV_MEASURE_AB_TRIAL_H_
#define VOXCONV_MEASURE_AB_TRIAL_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/measure/ab/gate.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/cache_use.h"
#include "voxconv/measure/gpu_watch.h"
#include "voxconv/measure/machine_load.h"
#include "voxconv/measure/paired.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::ab {

struct Verification {
  // For result lines: {"maps": "all rows", "layers": [...], "held": {"by", "rows", "error"},
  // "difference", "bound"}.
  measure::Json checks;
  int64_t voxels = 0;     // of the largest crop
  double error = 0;       // the worst against the reference
  Held held;              // what was checked on the whole input; no rows in map cells
  double difference = 0;  // between the sides' outputs
};

// Checks every layer shape of both sides against the reference, then A against B, and then both
// against what the whole output must be (Work::hold). A layer of a configuration on an input is
// checked against the reference once in a process; later trials of it use that result.
class Verifier {
 public:
  // Both must outlive it. `crop_voxels`: the most voxels that the reference is given.
  Verifier(const Registry& registry, const ExecutionContext& context,
           int64_t crop_voxels = verify::kCropVoxels)
      : registry_(registry), context_(context), crop_voxels_(crop_voxels) {}

  // `input_hash` identifies the input (measure::HashInput). The message of an error begins with
  // "not timed".
  absl::StatusOr<Verification> Verify(const Request& request, const Work& work,
                                      const std::string& input_hash);

 private:
  absl::StatusOr<verify::CropCheck> Check(const measure::Configuration& configuration,
                                          const LayerShape& shape, const Request& request,
                                          const std::string& input_hash);

  const Registry& registry_;
  ExecutionContext context_;
  int64_t crop_voxels_;
  std::map<std::string, verify::CropCheck> known_;  // by input, layer and configuration
  std::map<std::string, verify::CropReference>
      references_;  // by layer, of the input `references_of_`
  std::string references_of_;
};

// What is done and noted beside the runs.
struct Surroundings {
  measure::CacheUse cache;
  std::optional<measure::MachineLoad> load;  // of the machine while it was timed
  std::optional<measure::GpuWatch> gpu;      // the same of the GPU
};

// Runs the pairs, and notes what the machine and the GPU did meanwhile. Ctrl-C ends them early,
// unless `options.stop` is set.
absl::StatusOr<measure::PairedSamples> Measure(measure::PairedOptions options, const Work& work,
                                               const ExecutionContext& context,
                                               Surroundings& surroundings);

// The same pairs with both sides captured into graphs: a ratio of what the device does, where what
// the host does bounds a side. Null where the sides cannot be captured (Side::capture). {"why"}
// where one of them refuses. Otherwise {"speedup", "verdict", "pairs", "a", "b": {"wall_ms"},
// "launch_bound": [SIDES]}; `as_run` decides on the last. Errors of replays that give another
// output.
absl::StatusOr<measure::Json> CompareCaptured(measure::PairedOptions options, const Work& work,
                                              const measure::Comparison& as_run,
                                              const ExecutionContext& context,
                                              const Surroundings& surroundings);
// A side that takes longer than its captured form by more than this factor is launch-bound.
inline constexpr double kLaunchBound = 1.25;

struct NamedInput {
  std::string name;
  std::string voxel_size;
  std::string hash;  // measure::HashInput of the cloud
};

// The keys that all lines of trials share: "provenance", "input", "work", "seed", "factors",
// "configurations".
measure::Json DescribeTrial(const Request& request, const Work& work, const NamedInput& input,
                            const std::string& name_a, const std::string& name_b, int warmup,
                            const Surroundings& surroundings, const ExecutionContext& context);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_TRIAL_H_
