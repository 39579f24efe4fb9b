// SPDX-License-Identifier: Apache-2.0
// The two sides of an A/B comparison, made from the same voxels.
#ifndef VOXCONV_MEASURE_AB_WORK_H_
#define VOXCONV_MEASURE_AB_WORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/registry.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/layer_work.h"
#include "voxconv/measure/paired.h"
#include "voxconv/measure/preset.h"
#include "voxconv/networks/graph.h"

namespace voxconv::ab {

struct LayerShape {
  GeometryParams geometry;  // from the fine side (measure/layer_work.h)
  int64_t c_in = 32;
  int64_t c_out = 32;
};

struct Side {
  measure::RunOnce run;
  // The output features of the last run, on the host.
  std::function<absl::StatusOr<std::vector<float>>()> output;
  // Records the same work, and checks a replay of it against a run. The result replays it: without
  // what the host takes to queue it. kUnimplemented and kFailedPrecondition say why the side cannot
  // be recorded. Empty where maps are rebuilt, for which the host waits, and for a backend that
  // records nothing.
  std::function<absl::StatusOr<measure::RunOnce>()> capture;
};

// What of the whole output was held against what it must be.
struct Held {
  std::string by;    // "sampled rows", "the trusted pair"
  int64_t rows = 0;  // of the output
  double error = 0;  // the worst of both sides, norm-wise
};

struct Work {
  Side a, b;
  double bound = 0;  // of the norm-wise difference of their outputs
  // Layers that are checked against the reference first: the layer itself, or one of each kind in
  // the network.
  std::vector<LayerShape> layers_to_check;
  // Holds the last output of both sides against the exact sums on rows that are spread over all of
  // it, or against that of the trusted pair on all rows: the same fault on both sides would pass a
  // comparison of the two. kInternal says what is wrong. Empty for maps, whose making checks all.
  std::function<absl::StatusOr<Held>()> hold;
  std::string title;          // one line for people
  measure::Json description;  // the same for result files
};

// What a process has held against its definition on one input. Later requests on the same input
// need not do it again: the same code has the same coordinates before it.
struct HeldBefore {
  struct Output {
    int64_t rows = 0;
    std::vector<float> values;  // [rows, C]
  };
  std::set<std::string> maps;             // of a layer, or of a network, by a configuration
  std::map<std::string, Output> trusted;  // of the trusted pair, by network
};

// The f32 values of a layer in host memory. They are rounded to the layer's dtype later.
struct HostValues {
  std::vector<float> features, weights;
};

// What is kept for later requests of a process. It makes no difference to a result.
struct Kept {
  std::map<std::string, std::shared_ptr<const NetworkGraph>> graphs;  // with parameters
  // The network sides that were made last, oldest first, each with a text of what it was made of.
  // All are of one input.
  std::vector<std::pair<std::string, Side>> sides;
  // The values of the layer that was made last, with a text of its sizes and seed.
  std::pair<std::string, std::shared_ptr<const HostValues>> values;
};

struct Request {
  measure::Configuration a, b;
  const VoxelizedCloud& cloud;
  bool rebuild_maps = true;
  Precision precision_a = Precision::kF32;
  Precision precision_b = Precision::kF32;
  uint64_t seed = 1;  // of weights, and of the features of a layer
  // Whether a network on CUDA has stage times. The events between the stages of a frame cost more
  // than many stages do. Layers, maps and the CPU always have stage times.
  bool stage_times = false;
  HeldBefore* held_before = nullptr;  // of `cloud`, if there is one
  Kept* kept = nullptr;               // `sides` of `cloud`
  // Whether the same program has checked these sides on this input before: making them then
  // compares no maps with their definition.
  bool checked = false;
};

struct NetworkShape {
  std::string name;
  double width = 1;
  std::optional<Box> grid = {};  // ModelOptions (networks/models.h)
};

// Both prepare the two sides. kUnimplemented gives the reason why a side does not support the work.
// The maps of both sides are held against their definition on all rows before anything reads rows
// by them: those of the layer, or all of the network. Two sides whose kernel maps or output
// coordinates differ are refused. `registry` and the context's backend must outlive the result.
absl::StatusOr<Work> MakeLayerWork(const Request& request, const LayerShape& shape,
                                   const Registry& registry, const ExecutionContext& context);
absl::StatusOr<Work> MakeNetworkWork(const Request& request, const NetworkShape& shape,
                                     const Registry& registry, const ExecutionContext& context);

// The same for the map of a layer alone: output coordinates, index and query, in the form that the
// mapping makes. Dataflows and `rebuild_maps` are not used. The output of a side is the number of
// pairs of each kernel offset.
absl::StatusOr<Work> MakeMapWork(const Request& request, const GeometryParams& geometry,
                                 const Registry& registry, const ExecutionContext& context);

// Checks that both sides have the right map of the layer, and the same, read from what was prepared
// for their dataflows. kInternal names the first pair that differs. Errors of MakeLayerWork.
absl::Status CheckSameMaps(const Request& request, const LayerShape& shape,
                           const Registry& registry, const ExecutionContext& context);

// Holds the maps of a side against their definition (measure::CheckMapper), unless that was done
// before on this input.
absl::Status HoldMaps(const measure::LayerProblem& problem,
                      const measure::Configuration& configuration, HeldBefore* held_before,
                      const Registry& registry, const ExecutionContext& context);

// "f32", or "f16 and f32" where the sides differ.
std::string PrecisionsOf(const Request& request);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_WORK_H_
