// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/layer_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/map_check.h"
#include "voxconv/measure/timer.h"

namespace voxconv::measure {
namespace {

absl::Status Scale(const Int3& factor, std::vector<Coordinate>& rows) {
  for (Coordinate& row : rows) {
    for (auto [value, by] : {std::pair(&row.x, factor.x), {&row.y, factor.y}, {&row.z, factor.z}}) {
      const int64_t scaled = int64_t{*value} * by;
      if (!InRange(scaled)) {
        return absl::OutOfRangeError(absl::StrCat("coordinate ", *value, " times stride ", by,
                                                  " is outside ", kMinCoordinate, "..",
                                                  kMaxCoordinate));
      }
      *value = static_cast<int32_t>(scaled);
    }
  }
  return absl::OkStatus();
}

// The spec of the configuration's dataflow for one layer. By a heuristic, the layer is a group of
// its own.
const std::string& DataflowOf(const Configuration& configuration, const ConvShape& shape) {
  if (!configuration.heuristic.has_value()) return configuration.choice.dataflow;
  const HeuristicPlanner::Config& heuristic = *configuration.heuristic;
  const bool narrow = std::max(shape.c_in, shape.c_out) <= heuristic.channel_threshold;
  return narrow ? heuristic.narrow : heuristic.wide;
}

}  // namespace

absl::StatusOr<LayerProblem> MakeLayerProblem(const GeometryParams& params,
                                              std::vector<Coordinate> rows,
                                              const OutputCoords& output_coords,
                                              const ExecutionContext& context) {
  GeometryParams placed = params;
  const bool from_coarse =
      params.kind == ConvKind::kInverse || params.kind == ConvKind::kTransposed;
  if (from_coarse) placed.input_tensor_stride = params.stride;
  VOXCONV_ASSIGN_OR_RETURN(ConvGeometry geometry, ConvGeometry::Create(placed));
  if (params.kind == ConvKind::kTransposed) {
    VOXCONV_RETURN_IF_ERROR(Scale(params.stride, rows));
  }
  if (params.kind != ConvKind::kInverse) return LayerProblem{geometry, std::move(rows), {}};

  GeometryParams strided = params;
  strided.kind = ConvKind::kStrided;
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry fine_to_coarse, ConvGeometry::Create(strided));
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr fine, CoordinateSet::Create(rows, {1, 1, 1}, context));
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr coarse,
                           output_coords.Compute(*fine, fine_to_coarse, context));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<Coordinate> inputs, CopyToHost(coarse->rows(), context));
  return LayerProblem{geometry, std::move(inputs), std::move(rows)};
}

absl::StatusOr<Measurement> Measure(
    const ExecutionContext& context,
    const std::function<absl::Status(const ExecutionContext&)>& work) {
  Measurement measurement;
  ExecutionContext profiled = context;
  profiled.profile = &measurement.profile;
  const Timer timer;
  VOXCONV_RETURN_IF_ERROR(work(profiled));
  VOXCONV_RETURN_IF_ERROR(profiled.stream->Synchronize());
  measurement.wall_ms = timer.Milliseconds();
  VOXCONV_RETURN_IF_ERROR(profiled.backend->FlushStages());
  return measurement;
}

absl::StatusOr<LayerMapper> LayerMapper::Create(const LayerProblem& problem,
                                                const Configuration& configuration,
                                                const Registry& registry,
                                                const ExecutionContext& context) {
  LayerMapper mapper(problem.geometry);
  const BackendKind backend = context.backend->kind();
  VOXCONV_ASSIGN_OR_RETURN(mapper.mapping_,
                           registry.mappings().Create(configuration.choice.mapping, backend));
  VOXCONV_ASSIGN_OR_RETURN(mapper.output_coords_, registry.output_coords().Create(
                                                      configuration.choice.output_coords, backend));
  VOXCONV_ASSIGN_OR_RETURN(
      mapper.inputs_,
      CoordinateSet::Create(problem.inputs, problem.geometry.input_tensor_stride(), context));
  if (problem.geometry.kind() == ConvKind::kInverse) {
    VOXCONV_ASSIGN_OR_RETURN(
        mapper.outputs_,
        CoordinateSet::Create(problem.outputs, problem.geometry.output_tensor_stride(), context));
  }
  return mapper;
}

absl::StatusOr<KernelMap> LayerMapper::MakeMap(const ExecutionContext& context) {
  if (geometry_.keeps_coordinates()) {
    outputs_ = inputs_;
  } else if (geometry_.kind() != ConvKind::kInverse) {
    VOXCONV_RETURN_IF_ERROR(output_coords_->Supports(geometry_).ToStatus("output_coords"));
    VOXCONV_ASSIGN_OR_RETURN(outputs_, output_coords_->Compute(*inputs_, geometry_, context));
  }
  return QueryKernelMap(*mapping_, {*inputs_, *outputs_, geometry_}, context);
}

absl::Status CheckMapper(const LayerProblem& problem, const Configuration& configuration,
                         const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(LayerMapper mapper,
                           LayerMapper::Create(problem, configuration, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, mapper.MakeMap(context));
  const ConvGeometry& geometry = mapper.geometry();
  const CoordinateSet &inputs = mapper.inputs(), &outputs = mapper.outputs();
  if (geometry.kind() == ConvKind::kInverse) {
    // Its inputs are the outputs of the strided layer.
    GeometryParams strided = geometry.params();
    strided.kind = ConvKind::kStrided;
    strided.input_tensor_stride = geometry.output_tensor_stride();
    VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry fine_to_coarse, ConvGeometry::Create(strided));
    VOXCONV_RETURN_IF_ERROR(CheckOutputsOnAllRows(fine_to_coarse, outputs, inputs, context));
  } else if (!geometry.keeps_coordinates()) {
    VOXCONV_RETURN_IF_ERROR(CheckOutputsOnAllRows(geometry, inputs, outputs, context));
  }
  return CheckMapOnAllRows(map, {inputs, outputs, geometry}, context);
}

absl::StatusOr<std::unique_ptr<LayerRunner>> LayerRunner::Create(const LayerProblem& problem,
                                                                 const Configuration& configuration,
                                                                 const ConvShape& shape,
                                                                 const Registry& registry,
                                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(LayerMapper mapper,
                           LayerMapper::Create(problem, configuration, registry, context));
  std::unique_ptr<LayerRunner> runner(new LayerRunner(std::move(mapper), shape, context));
  VOXCONV_ASSIGN_OR_RETURN(
      runner->dataflow_,
      registry.dataflows().Create(DataflowOf(configuration, shape), context.backend->kind()));
  VOXCONV_RETURN_IF_ERROR(runner->dataflow_->Supports(Pass::kForward, shape).ToStatus("dataflow"));
  VOXCONV_RETURN_IF_ERROR(runner->BuildMap(context));
  return runner;
}

absl::Status LayerRunner::BuildMap(const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, mapper_.MakeMap(context));
  VOXCONV_ASSIGN_OR_RETURN(map_, PrepareMap(*dataflow_, Pass::kForward, shape_, map, context));
  return absl::OkStatus();
}

absl::Status LayerRunner::Load(absl::Span<const float> features, absl::Span<const float> weights) {
  const int64_t rows = inputs().size(), weight_rows = shape_.num_offsets * shape_.c_in;
  if (static_cast<int64_t>(features.size()) != rows * shape_.c_in ||
      static_cast<int64_t>(weights.size()) != weight_rows * shape_.c_out) {
    return absl::InvalidArgumentError(absl::StrCat(
        features.size(), " features and ", weights.size(), " weights; ", rows, " inputs, ",
        shape_.num_offsets, " offsets and ", shape_.c_in, " to ", shape_.c_out, " channels need ",
        rows * shape_.c_in, " and ", weight_rows * shape_.c_out));
  }
  // All runs in one precision get the same operands, whether a kernel rounds them to tf32 or cuts
  // off.
  const Precision precision = shape_.types.precision;
  const auto upload = [&](absl::Span<const float> values, int64_t count, int64_t channels) {
    return Tensor::FromHost(verify::RoundedTo(precision, {values.begin(), values.end()}), count,
                            channels, context_, StorageOf(precision));
  };
  VOXCONV_ASSIGN_OR_RETURN(features_, upload(features, rows, shape_.c_in));
  VOXCONV_ASSIGN_OR_RETURN(weights_, upload(weights, weight_rows, shape_.c_out));
  VOXCONV_ASSIGN_OR_RETURN(prepared_weights_,
                           dataflow_->PrepareWeights(shape_, weights_.view(), context_));
  return absl::OkStatus();
}

absl::StatusOr<Measurement> RecordedLayer::Run() {
  Measurement measurement;
  const Timer timer;
  VOXCONV_RETURN_IF_ERROR(recording_->Replay());
  VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
  measurement.wall_ms = timer.Milliseconds();
  return measurement;
}

absl::StatusOr<std::unique_ptr<RecordedLayer>> LayerRunner::Record() {
  Recorder* const recorder = context_.backend->recorder();
  if (recorder == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", ToString(context_.backend->kind()),
                     ": work is done when it is queued, so none can be recorded"));
  }
  std::unique_ptr<RecordedLayer> recorded(new RecordedLayer(context_));
  VOXCONV_ASSIGN_OR_RETURN(recorded->plan_,
                           dataflow_->Plan(Pass::kForward, *map_, shape_, context_));
  const auto run = [&](const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(
        recorded->output_,
        RunPlannedConvolution(*dataflow_, *recorded->plan_, *map_, features_.view(),
                              weights_.view(), recorded->workspace_, context, /*epilogue=*/{},
                              /*settled=*/false, prepared_weights_.get()));
    return absl::OkStatus();
  };
  VOXCONV_RETURN_IF_ERROR(run(context_));  // makes the workspace as large as it gets
  recorded->output_ = Tensor();
  VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
  VOXCONV_ASSIGN_OR_RETURN(recorded->recording_, recorder->Record(context_, run));
  return recorded;
}

absl::StatusOr<Measurement> LayerRunner::Run(bool rebuild_maps) {
  return Measure(context_, [&](const ExecutionContext& context) -> absl::Status {
    if (rebuild_maps) VOXCONV_RETURN_IF_ERROR(BuildMap(context));
    VOXCONV_ASSIGN_OR_RETURN(const auto plan,
                             dataflow_->Plan(Pass::kForward, *map_, shape_, context));
    VOXCONV_ASSIGN_OR_RETURN(
        output_, RunPlannedConvolution(*dataflow_, *plan, *map_, features_.view(), weights_.view(),
                                       workspace_, context, /*epilogue=*/{}, /*settled=*/false,
                                       prepared_weights_.get()));
    return absl::OkStatus();
  });
}

}  // namespace voxconv::measure
