#include "measure/ab/gate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "measure/layer_work.h"
#include "reference_cpu/convolution.h"
#include "reference_cpu/layers.h"
#include "verify/matrix.h"
#include "verify/problem.h"

namespace voxconv::ab {
namespace {

absl::Status CheckCoordinates(const measure::LayerRunner& runner, const verify::Problem& problem,
                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> outputs,
                           CopyToHost(runner.outputs().rows(), context));
  if (outputs == problem.outputs) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("output coordinates differ from the reference's (",
                                          outputs.size(), " and ", problem.outputs.size(),
                                          " rows)"));
}

}  // namespace

GeometryParams PlacedGeometry(GeometryParams geometry) {
  if (geometry.kind == ConvKind::kInverse || geometry.kind == ConvKind::kTransposed) {
    geometry.input_tensor_stride = geometry.stride;
  }
  return geometry;
}

std::vector<Coordinate> Crop(absl::Span<const Coordinate> rows, int64_t limit) {
  std::vector<Coordinate> crop;
  for (int64_t i : verify::CropRows(rows, limit)) crop.push_back(rows[i]);
  return crop;
}

absl::StatusOr<CropReference> MakeCropReference(const LayerShape& shape,
                                                absl::Span<const Coordinate> rows,
                                                int64_t crop_voxels) {
  // The problem is the reference's own, except that a geometry it cannot make is refused first.
  VOXCONV_RETURN_IF_ERROR(ConvGeometry::Create(PlacedGeometry(shape.geometry)).status());
  CropReference reference;
  reference.problem =
      verify::MakeProblem({"layer", shape.geometry}, {"crop", Crop(rows, crop_voxels)});
  const verify::Problem& problem = *reference.problem;
  const auto num_inputs = static_cast<int64_t>(problem.inputs.size());
  const auto num_outputs = static_cast<int64_t>(problem.outputs.size());
  reference.features = verify::Values(num_inputs * shape.c_in, 1);
  reference.weights = verify::Values(problem.geometry.num_offsets() * shape.c_in * shape.c_out, 2);
  reference.output =
      reference::Convolution(problem.map, {num_inputs, num_outputs, shape.c_in, shape.c_out},
                             reference.features, reference.weights);
  reference.bound = verify::ErrorBound(
      DType::kF32, reference::ReductionLength(problem.map, num_outputs, shape.c_in));
  return reference;
}

absl::StatusOr<CropCheck> CheckAgainst(const CropReference& reference,
                                       const measure::Configuration& configuration,
                                       const LayerShape& shape, const Registry& registry,
                                       const ExecutionContext& context) {
  const verify::Problem& problem = *reference.problem;
  VOXCONV_ASSIGN_OR_RETURN(
      const std::unique_ptr<measure::LayerRunner> runner,
      measure::LayerRunner::Create({problem.geometry, problem.inputs, problem.outputs},
                                   configuration, registry, context));
  VOXCONV_RETURN_IF_ERROR(CheckCoordinates(*runner, problem, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, runner->Pairs());
  VOXCONV_RETURN_IF_ERROR(verify::CompareMaps(pairs, problem.map, context));

  VOXCONV_RETURN_IF_ERROR(
      runner->Load(reference.features, reference.weights, shape.c_in, shape.c_out));
  VOXCONV_RETURN_IF_ERROR(runner->Run(/*rebuild_maps=*/true).status());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, runner->Output());
  CropCheck check;
  check.voxels = runner->inputs().size();
  check.error = reference::RelativeError(output, reference.output);
  check.bound = reference.bound;
  // Written so that a NaN fails.
  if (check.error <= check.bound) return check;
  return absl::InternalError(absl::StrCat("norm-wise error ", check.error,
                                          " against the reference is past ", check.bound));
}

absl::StatusOr<CropCheck> CheckAgainstReference(const measure::Configuration& configuration,
                                                const LayerShape& shape,
                                                absl::Span<const Coordinate> rows,
                                                const Registry& registry,
                                                const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const CropReference reference,
                           MakeCropReference(shape, rows, kCropVoxels));
  return CheckAgainst(reference, configuration, shape, registry, context);
}

absl::StatusOr<double> CompareOutputs(const Work& work) {
  VOXCONV_RETURN_IF_ERROR(work.a.run().status());
  VOXCONV_RETURN_IF_ERROR(work.b.run().status());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> a, work.a.output());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> b, work.b.output());
  const double difference = reference::RelativeError(a, b);
  if (difference <= work.bound) return difference;
  return absl::InternalError(
      absl::StrCat("outputs of A and B differ norm-wise by ", difference, ", past ", work.bound));
}

}  // namespace voxconv::ab
