// One convolution layer as work that any configuration can do.
#ifndef VOXCONV_MEASURE_LAYER_WORK_H_
#define VOXCONV_MEASURE_LAYER_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/convolution.h"
#include "core/registry.h"
#include "measure/paired.h"
#include "measure/preset.h"
#include "verify/gate.h"

namespace voxconv::measure {

// Host coordinates of both sides. `outputs` is set for inverse layers only; for all others they are
// the layer's own to find.
struct LayerProblem {
  ConvGeometry geometry;
  std::vector<Coordinate> inputs;
  std::vector<Coordinate> outputs;
};

// The problem that voxels `rows` (tensor stride 1) pose. `params` names the layer from its fine
// side at tensor stride 1, as in "strided k2 s2"; the tensor stride of an inverse or transposed
// layer's inputs is then its stride. Inputs are the rows; of an inverse layer the outputs are, and
// its inputs are the outputs of the strided layer, by `output_coords`; of a transposed layer the
// inputs are the rows times the stride. Refuses what ConvGeometry refuses, and rows that leave the
// coordinate range by that product.
absl::StatusOr<LayerProblem> MakeLayerProblem(const GeometryParams& params,
                                              std::vector<Coordinate> rows,
                                              const OutputCoords& output_coords,
                                              const ExecutionContext& context);

// Runs `work` with a context that profiles it, and waits until all is done.
absl::StatusOr<Measurement> Measure(
    const ExecutionContext& context,
    const std::function<absl::Status(const ExecutionContext&)>& work);

// A layer's coordinates in the backend's memory, and one configuration's plugins for its map.
class LayerMapper {
 public:
  // Finds nothing yet. `registry` must outlive the mapper.
  static absl::StatusOr<LayerMapper> Create(const LayerProblem& problem,
                                            const Configuration& configuration,
                                            const Registry& registry,
                                            const ExecutionContext& context);

  // The output coordinates, unless the layer has them already, and the map as the mapping makes it.
  // What a plugin does not support is refused with its reason.
  absl::StatusOr<KernelMap> MakeMap(const ExecutionContext& context);

  const ConvGeometry& geometry() const { return geometry_; }
  const CoordinateSet& inputs() const { return *inputs_; }
  const CoordinateSet& outputs() const { return *outputs_; }  // after MakeMap

 private:
  explicit LayerMapper(ConvGeometry geometry) : geometry_(std::move(geometry)) {}

  ConvGeometry geometry_;
  std::unique_ptr<const Mapping> mapping_;
  std::unique_ptr<const OutputCoords> output_coords_;
  CoordinateSetPtr inputs_, outputs_;
};

// A layer bound to one configuration: its plugins, and its data in the backend's memory.
class LayerRunner {
 public:
  // Finds the output coordinates, builds the map and prepares it for the dataflow. A mapping or
  // dataflow that does not support the layer is refused here, with its reason. `shape` is the
  // layer's (ShapeOfLayer). `registry` and `context`'s backend must outlive the runner.
  static absl::StatusOr<std::unique_ptr<LayerRunner>> Create(const LayerProblem& problem,
                                                             const Configuration& configuration,
                                                             const ConvShape& shape,
                                                             const Registry& registry,
                                                             const ExecutionContext& context);

  // Features [N_in, c_in] and weights [K * c_in, c_out], both rounded to the shape's precision.
  // Sizes that do not fit are refused.
  absl::Status Load(absl::Span<const float> features, absl::Span<const float> weights);

  // One run after Load. `rebuild_maps`: output coordinates, index, map and its preparation are part
  // of the run; otherwise the map is the one at hand.
  absl::StatusOr<Measurement> Run(bool rebuild_maps);

  // Of the last run, on the host.
  absl::StatusOr<std::vector<float>> Output() const { return output_.ToHost(context_); }
  // The canonical pairs, read off the map that was prepared for the dataflow.
  absl::StatusOr<KernelMap> Pairs() const { return map_->ToPairs(context_); }
  // What the bound on its output depends on.
  verify::RunPrecision precision() const { return verify::RunPrecisionOf(*dataflow_, shape_); }

  const ConvGeometry& geometry() const { return mapper_.geometry(); }
  const CoordinateSet& inputs() const { return mapper_.inputs(); }
  const CoordinateSet& outputs() const { return mapper_.outputs(); }

 private:
  LayerRunner(LayerMapper mapper, const ConvShape& shape, const ExecutionContext& context)
      : mapper_(std::move(mapper)), shape_(shape), context_(context) {}
  absl::Status BuildMap(const ExecutionContext& context);

  LayerMapper mapper_;
  ConvShape shape_;
  ExecutionContext context_;
  std::unique_ptr<const Dataflow> dataflow_;
  std::shared_ptr<const PreparedMap> map_;
  Tensor features_, weights_, output_;
  Workspace workspace_;
};

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_LAYER_WORK_H_
