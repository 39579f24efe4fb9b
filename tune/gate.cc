#include "tune/gate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/convolution.h"
#include "core/tensor_ops.h"
#include "measure/ab/gate.h"
#include "reference_cpu/convolution.h"
#include "reference_cpu/layers.h"
#include "verify/matrix.h"
#include "verify/problem.h"

namespace voxconv::tune {
namespace {

// Of the reference on one core: about a tenth of a second.
constexpr double kReferenceProducts = 5e7;

std::vector<float> Scaled(std::vector<float> values, double factor) {
  for (float& value : values) value = static_cast<float>(value * factor);
  return values;
}

std::vector<float> Weights(int num_offsets, const ConvShape& shape) {
  const auto reduction = static_cast<double>(num_offsets * shape.c_in);
  return Scaled(verify::Values(num_offsets * shape.c_in * shape.c_out, 32),
                1 / std::sqrt(std::max(reduction, 1.0)));
}

// In units of the tensor stride, so that the layer lies at tensor stride 1 as the verify problems.
std::vector<Coordinate> Divided(absl::Span<const Coordinate> rows, const Int3& stride) {
  std::vector<Coordinate> divided;
  divided.reserve(rows.size());
  for (const Coordinate& c : rows) {
    divided.push_back({c.b, c.x / stride.x, c.y / stride.y, c.z / stride.z});
  }
  return divided;
}

absl::StatusOr<Tensor> ConvolveOnto(const Dataflow& dataflow, const KernelMap& map,
                                    ForwardArgs args, const ConvShape& shape, Workspace& workspace,
                                    const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<DataflowPlan> plan,
                           dataflow.Plan(map, shape, context));
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           Tensor::Create(map.num_outputs(), shape.c_out, shape.dtype, context));
  args.output = output.view();
  // All bits set is NaN in every dtype.
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(args.output.data, 0xff, args.output.bytes(), *context.stream));
  const Epilogue epilogue = args.epilogue;
  const bool fused = dataflow.FusesEpilogue(context.backend->kind());
  if (!fused) args.epilogue = {};
  VOXCONV_RETURN_IF_ERROR(dataflow.Forward(*plan, map, args, workspace, context));
  if (!fused && !epilogue.empty()) {
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().ScaleShift(
        args.output, epilogue.scale, epilogue.shift, epilogue.relu, args.output, context));
  }
  return output;
}

}  // namespace

absl::StatusOr<LayerData> LayerData::Create(int64_t num_inputs, int num_offsets,
                                            const ConvShape& shape,
                                            const ExecutionContext& context) {
  LayerData data;
  data.shape_ = shape;
  VOXCONV_ASSIGN_OR_RETURN(data.features_,
                           Tensor::FromHost(verify::Values(num_inputs * shape.c_in, 31), num_inputs,
                                            shape.c_in, context, shape.dtype));
  VOXCONV_ASSIGN_OR_RETURN(data.weights_,
                           Tensor::FromHost(Weights(num_offsets, shape), num_offsets * shape.c_in,
                                            shape.c_out, context, shape.dtype));
  const std::vector<float> shift = Scaled(verify::Values(shape.c_out, 33), 0.1);
  VOXCONV_ASSIGN_OR_RETURN(data.shift_, CopyToBackend<float>(shift, context));
  // `shift` ends here: the copy may still be queued.
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return data;
}

absl::StatusOr<Tensor> LayerData::Run(const Dataflow& dataflow, const DataflowPlan& plan,
                                      const KernelMap& map, Workspace& workspace,
                                      const ExecutionContext& context) const {
  return RunPlannedConvolution(dataflow, plan, map, features_.view(), weights_.view(), workspace,
                               context, {.shift = shift_.data(), .residual = {}, .relu = true});
}

absl::StatusOr<std::vector<float>> LayerData::Output(const Dataflow& dataflow, const KernelMap& map,
                                                     Workspace& workspace,
                                                     const ExecutionContext& context) const {
  const ForwardArgs args{features_.view(),
                         weights_.view(),
                         {},
                         {.shift = shift_.data(), .residual = {}, .relu = true}};
  VOXCONV_ASSIGN_OR_RETURN(const Tensor output,
                           ConvolveOnto(dataflow, map, args, shape_, workspace, context));
  return output.ToHost(context);
}

absl::Status CheckOnCrop(const Mapping& mapping, const Dataflow& dataflow,
                         const GeometryParams& params, absl::Span<const Coordinate> rows,
                         const Int3& tensor_stride, const ConvShape& shape,
                         const ExecutionContext& context) {
  GeometryParams at_stride_one = params;
  at_stride_one.input_tensor_stride = {1, 1, 1};
  const double products = static_cast<double>(shape.c_in * shape.c_out) * params.kernel.x *
                          params.kernel.y * params.kernel.z;
  const auto limit =
      std::clamp(static_cast<int64_t>(kReferenceProducts / products), int64_t{50}, ab::kCropVoxels);
  const std::unique_ptr<verify::Problem> problem = verify::MakeProblem(
      {"layer", at_stride_one}, {"crop", ab::Crop(Divided(rows, tensor_stride), limit)});
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr inputs, problem->MakeInputs(context));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs, problem->MakeOutputs(inputs, context));
  VOXCONV_ASSIGN_OR_RETURN(
      const KernelMap map,
      BuildKernelMap(mapping, {*inputs, *outputs, problem->geometry}, {}, context));
  VOXCONV_RETURN_IF_ERROR(verify::CompareMaps(map, problem->map, context));

  const int num_offsets = problem->geometry.num_offsets();
  const std::vector<float> features = verify::Values(inputs->size() * shape.c_in, 31);
  const std::vector<float> weights = Weights(num_offsets, shape);
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor x, Tensor::FromHost(features, inputs->size(), shape.c_in, context, shape.dtype));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor w, Tensor::FromHost(weights, num_offsets * shape.c_in,
                                                            shape.c_out, context, shape.dtype));
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y,
                           RunConvolution(dataflow, map, x.view(), w.view(), workspace, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, y.ToHost(context));
  const double error = reference::RelativeError(
      output, reference::Convolution(problem->map,
                                     {inputs->size(), outputs->size(), shape.c_in, shape.c_out},
                                     features, weights));
  const double bound = verify::ErrorBound(
      shape.dtype, reference::ReductionLength(problem->map, outputs->size(), shape.c_in));
  // Written so that a NaN fails.
  if (error <= bound) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("norm-wise error ", error, " against the reference is past ", bound));
}

absl::Status CompareOutputs(const std::vector<float>& output, const reference::Fp64Array& trusted,
                            DType dtype, int64_t reduction) {
  const double error = reference::RelativeError(output, trusted);
  const double bound = 2 * verify::ErrorBound(dtype, reduction);
  if (error <= bound) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("its output is off norm-wise by ", error, ", past ", bound));
}

}  // namespace voxconv::tune
