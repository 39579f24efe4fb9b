#include "core/convolution.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/tensor_ops.h"

namespace voxconv {
namespace {

absl::StatusOr<ConvShape> CheckShapes(const KernelMap& map, const TensorView& input,
                                      const TensorView& weights) {
  if (input.rows != map.num_inputs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features: ", input.rows, " rows; the kernel map has ", map.num_inputs(), " inputs"));
  }
  if (weights.rows != map.num_offsets() * input.channels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights: ", weights.rows, " rows; the kernel's ", map.num_offsets(), " offsets and ",
        input.channels, " input channels need ", map.num_offsets() * input.channels));
  }
  if (input.dtype != weights.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("weights: dtype ", ToString(weights.dtype),
                                                   "; the features are ", ToString(input.dtype)));
  }
  return ConvShape{input.channels, weights.channels, input.dtype};
}

// In place.
absl::Status ApplyEpilogue(const Epilogue& epilogue, const TensorView& y,
                           const ExecutionContext& context) {
  const StageScope stage(context, Stage::kEpilogue);
  TensorOps& ops = context.backend->tensor_ops();
  const bool adds = epilogue.residual.data != nullptr;
  if (epilogue.scale != nullptr || epilogue.shift != nullptr || !adds) {
    VOXCONV_RETURN_IF_ERROR(
        ops.ScaleShift(y, epilogue.scale, epilogue.shift, epilogue.relu && !adds, y, context));
  }
  if (!adds) return absl::OkStatus();
  return ops.Add(y, epilogue.residual, epilogue.relu, y, context);
}

}  // namespace

absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context) {
  if (problem.inputs.tensor_stride() != problem.geometry.input_tensor_stride()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: tensor stride ", ToString(problem.inputs.tensor_stride()),
                     "; the geometry expects ", ToString(problem.geometry.input_tensor_stride())));
  }
  const Support support = mapping.Supports(problem.geometry, context.backend->kind());
  if (!support.ok) return absl::UnimplementedError(absl::StrCat("mapping: ", support.reason));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           mapping.BuildIndex(problem.inputs, context));
  return mapping.Query(*index, problem, context);
}

absl::StatusOr<KernelMap> BuildKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const LayoutRequest& request,
                                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, QueryKernelMap(mapping, problem, context));
  if (map.layout() == request) return map;
  return context.backend->ConvertKernelMap(map, request, context);
}

absl::StatusOr<Tensor> RunConvolution(const Dataflow& dataflow, const KernelMap& map,
                                      const TensorView& input, const TensorView& weights,
                                      Workspace& workspace, const ExecutionContext& context,
                                      const Epilogue& epilogue) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape, CheckShapes(map, input, weights));
  const Support support = dataflow.Supports(shape, context.backend->kind());
  if (!support.ok) return absl::UnimplementedError(absl::StrCat("dataflow: ", support.reason));

  const LayoutRequest request = dataflow.RequiredLayout(map.num_offsets());
  std::optional<KernelMap> converted;
  if (map.layout() != request) {
    VOXCONV_ASSIGN_OR_RETURN(converted, context.backend->ConvertKernelMap(map, request, context));
  }
  const KernelMap& used = converted.has_value() ? *converted : map;
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<DataflowPlan> plan, dataflow.Plan(used, shape, context));
  return RunPlannedConvolution(dataflow, *plan, used, input, weights, workspace, context, epilogue);
}

absl::StatusOr<Tensor> RunPlannedConvolution(const Dataflow& dataflow, const DataflowPlan& plan,
                                             const KernelMap& map, const TensorView& input,
                                             const TensorView& weights, Workspace& workspace,
                                             const ExecutionContext& context,
                                             const Epilogue& epilogue, bool settled) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape, CheckShapes(map, input, weights));
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan.booking(), context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           Tensor::Create(map.num_outputs(), shape.c_out, shape.dtype, context));
  const bool fused = dataflow.FusesEpilogue(context.backend->kind());
  VOXCONV_RETURN_IF_ERROR(dataflow.Forward(
      plan, map, {input, weights, output.view(), fused ? epilogue : Epilogue{}, settled}, workspace,
      context));
  if (!fused && !epilogue.empty()) {
    VOXCONV_RETURN_IF_ERROR(ApplyEpilogue(epilogue, output.view(), context));
  }
  return output;
}

}  // namespace voxconv
