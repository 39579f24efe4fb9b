// SPDX-License-Identifier: Apache-2.0
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
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"
#include "voxconv/measure/paired.h"
#include "voxconv/measure/preset.h"
#include "voxconv/verify/gate.h"

namespace voxconv::measure {

// A layer and its coordinates on the host. `outputs` is given for inverse layers only. Other layers
// find their outputs.
struct LayerProblem {
  ConvGeometry geometry;
  std::vector<Coordinate> inputs;
  std::vector<Coordinate> outputs;
};

// Places a layer on the voxels `rows`, whose tensor stride is 1. `params` describes the layer from
// its fine side at tensor stride 1, as in "strided k2 s2". The tensor stride of the inputs of an
// inverse or transposed layer is then its stride.
// - Submanifold and strided: the inputs are the rows.
// - Inverse: the outputs are the rows. The inputs are the outputs of the strided layer, which
//   `output_coords` computes.
// - Transposed: the inputs are the rows times the stride.
// Errors of ConvGeometry::Create. Refuses rows that leave the coordinate range when they are
// multiplied.
absl::StatusOr<LayerProblem> MakeLayerProblem(const GeometryParams& params,
                                              std::vector<Coordinate> rows,
                                              const OutputCoords& output_coords,
                                              const ExecutionContext& context);

// Runs `work` once with a context that profiles it, and synchronises the stream.
absl::StatusOr<Measurement> Measure(
    const ExecutionContext& context,
    const std::function<absl::Status(const ExecutionContext&)>& work);

// A layer's coordinates in the backend's memory, and one configuration's plugins for its map.
class LayerMapper {
 public:
  // Makes the plugins and copies the coordinates. Does not find a map yet. `registry` and the
  // context's backend must outlive the mapper.
  static absl::StatusOr<LayerMapper> Create(const LayerProblem& problem,
                                            const Configuration& configuration,
                                            const Registry& registry,
                                            const ExecutionContext& context);

  // Finds the output coordinates, unless the layer has them already, and the map, in the form that
  // the mapping makes. kUnimplemented gives the reason why a plugin does not support the layer.
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

// Finds output coordinates and map once, and holds both against their definition on all rows
// (core/map_check.h). Comes before all that reads rows by the map. kInternal says what is wrong.
// Errors of LayerMapper. Synchronises the stream.
absl::Status CheckMapper(const LayerProblem& problem, const Configuration& configuration,
                         const Registry& registry, const ExecutionContext& context);

class LayerRunner;

// A layer's run on the map that is there, recorded. Must not outlive its runner.
class RecordedLayer {
 public:
  // One replay, timed as a run of the layer. It has no stage times and no counters.
  absl::StatusOr<Measurement> Run();
  // The output of the last replay, on the host. Synchronises the stream.
  absl::StatusOr<std::vector<float>> Output() const { return output_.ToHost(context_); }

 private:
  friend class LayerRunner;
  explicit RecordedLayer(const ExecutionContext& context) : context_(context) {}

  ExecutionContext context_;
  std::unique_ptr<const DataflowPlan> plan_;
  Workspace workspace_;
  Tensor output_;
  std::unique_ptr<Recording> recording_;  // the last member: it refers to the memory of the others
};

// A layer bound to one configuration: its plugins, and its data in the backend's memory.
class LayerRunner {
 public:
  // Finds the output coordinates, builds the map and prepares it for the dataflow. `shape` is that
  // of the layer (ShapeOfLayer). `registry` and the context's backend must outlive the runner.
  // kUnimplemented gives the reason why a plugin does not support the layer.
  static absl::StatusOr<std::unique_ptr<LayerRunner>> Create(const LayerProblem& problem,
                                                             const Configuration& configuration,
                                                             const ConvShape& shape,
                                                             const Registry& registry,
                                                             const ExecutionContext& context);

  // Copies features [N_in, c_in] and weights [K * c_in, c_out] to the backend, rounded to the
  // shape's precision, and prepares the weights, as a network does once. kInvalidArgument for sizes
  // that do not fit.
  absl::Status Load(absl::Span<const float> features, absl::Span<const float> weights);

  // Runs once, after Load. With `rebuild_maps`, the run includes output coordinates, index, map and
  // its preparation. Otherwise it takes the map that is there.
  absl::StatusOr<Measurement> Run(bool rebuild_maps);

  // Records a run that takes the map that is there, after Load. kUnimplemented on a backend that
  // records nothing. kFailedPrecondition where a plugin waits for the device or copies from the
  // host while it runs.
  absl::StatusOr<std::unique_ptr<RecordedLayer>> Record();

  // The output of the last run, on the host. Synchronises the stream.
  absl::StatusOr<std::vector<float>> Output() const { return output_.ToHost(context_); }
  // The canonical pairs, read from the prepared map (PreparedMap::ToPairs).
  absl::StatusOr<KernelMap> Pairs() const { return map_->ToPairs(context_); }
  // What the bound on its output depends on.
  verify::RunPrecision precision() const { return verify::RunPrecisionOf(*dataflow_, shape_); }

  verify::Execution execution() const { return verify::ExecutionOf(*dataflow_, shape_); }

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
  std::unique_ptr<const PreparedWeights> prepared_weights_;
  Workspace workspace_;
};

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_LAYER_WORK_H_
