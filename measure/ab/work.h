// The two sides of an A/B comparison, made from the same voxels.
#ifndef VOXCONV_MEASURE_AB_WORK_H_
#define VOXCONV_MEASURE_AB_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/geometry.h"
#include "core/registry.h"
#include "io/voxelize.h"
#include "measure/paired.h"
#include "measure/preset.h"

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
};

struct Work {
  Side a, b;
  double bound = 0;  // on the norm-wise difference of their outputs
  // Layers to hold against the reference before: the one at hand, or of each kind in the network.
  std::vector<LayerShape> layers_to_check;
  std::string title;          // one line for people
  measure::Json description;  // the same for result files
};

struct Request {
  measure::Configuration a, b;
  const VoxelizedCloud& cloud;
  bool rebuild_maps = true;
  Precision dtype_a = Precision::kF32;
  Precision dtype_b = Precision::kF32;
  uint64_t seed = 1;  // of weights, and of the features of a layer
  // Of a network on CUDA, where the events between the stages of a frame cost more than many a
  // stage; layers, maps and the CPU always have stage times.
  bool stage_times = false;
};

struct NetworkShape {
  std::string name;
  double width = 1;
};

// All refuse what a side does not support, with its reason, and two sides whose kernel maps or
// output coordinates differ. The results refer to `registry` and the context's backend.
absl::StatusOr<Work> MakeLayerWork(const Request& request, const LayerShape& shape,
                                   const Registry& registry, const ExecutionContext& context);
absl::StatusOr<Work> MakeNetworkWork(const Request& request, const NetworkShape& shape,
                                     const Registry& registry, const ExecutionContext& context);

// Output coordinates, index and query of a layer's map alone, in the form that the mapping makes.
// The configurations' dataflows are not used, and `rebuild_maps` is not either. The outputs of a
// side are the pairs per kernel offset.
absl::StatusOr<Work> MakeMapWork(const Request& request, const GeometryParams& geometry,
                                 const Registry& registry, const ExecutionContext& context);

// Whether both sides have the same map of the layer, as their dataflows read it. kInternal names
// the first pair that differs. Refuses what MakeLayerWork refuses.
absl::Status CheckSameMaps(const Request& request, const LayerShape& shape,
                           const Registry& registry, const ExecutionContext& context);

// "f32", or "f16 and f32" where the sides differ.
std::string DTypesOf(const Request& request);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_WORK_H_
