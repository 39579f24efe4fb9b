#include "core/convolution.h"

#include <optional>
#include <utility>

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

// The epilogue is the dataflow's own part or follows it.
absl::Status Forward(const Dataflow& dataflow, const DataflowPlan& plan, const KernelMap& map,
                     ForwardArgs args, const Workspace& workspace,
                     const ExecutionContext& context) {
  Epilogue after;
  if (!dataflow.FusesEpilogue(context.backend->kind())) std::swap(after, args.epilogue);
  VOXCONV_RETURN_IF_ERROR(dataflow.Forward(plan, map, args, workspace, context));
  return after.empty() ? absl::OkStatus() : ApplyEpilogue(after, args.output, context);
}

absl::Status CheckNumber(absl::string_view what, int64_t number, int64_t expected) {
  if (number == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("mapping: its kernel map has ", number, " ", what,
                                          "; the problem has ", expected));
}

}  // namespace

absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem) {
  const LayoutRequest& layout = map.layout();
  if (layout != LayoutRequest{MapLayout::kPairs} &&
      layout != LayoutRequest{MapLayout::kNeighbourTable}) {
    return absl::InternalError(absl::StrCat(
        "mapping: its kernel map has the layout ", ToString(layout.layout), " with mask order ",
        ToString(layout.mask_order), " and splits ", layout.splits,
        "; allowed are pairs and neighbour_table, with mask order none and splits 1"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckNumber("inputs", map.num_inputs(), problem.inputs.size()));
  VOXCONV_RETURN_IF_ERROR(CheckNumber("outputs", map.num_outputs(), problem.outputs.size()));
  VOXCONV_RETURN_IF_ERROR(
      CheckNumber("offsets", map.num_offsets(), problem.geometry.num_offsets()));
  const absl::Status sizes = map.CheckSizes();
  if (sizes.ok()) return sizes;
  return absl::InternalError(absl::StrCat("mapping: ", sizes.message()));
}

absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context) {
  if (problem.inputs.tensor_stride() != problem.geometry.input_tensor_stride()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: tensor stride ", ToString(problem.inputs.tensor_stride()),
                     "; the geometry expects ", ToString(problem.geometry.input_tensor_stride())));
  }
  const Support support = mapping.Supports(problem.geometry, context.backend->kind());
  if (!support.ok) return absl::UnimplementedError(absl::StrCat("mapping: ", support.reason));
  VOXCONV_ASSIGN_OR_RETURN(
      std::unique_ptr<MapIndex> index,
      NonNull(mapping.BuildIndex(problem.inputs, context), "mapping: BuildIndex"));
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, mapping.Query(*index, problem, context));
  VOXCONV_RETURN_IF_ERROR(CheckQueriedMap(map, problem));
  return map;
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
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           Tensor::Create(map.num_outputs(), shape.c_out, shape.dtype, context));
  VOXCONV_RETURN_IF_ERROR(RunConvolutionOnto(dataflow, map, input, weights, output.view(),
                                             workspace, context, epilogue));
  return output;
}

absl::Status RunConvolutionOnto(const Dataflow& dataflow, const KernelMap& map,
                                const TensorView& input, const TensorView& weights,
                                const TensorView& output, Workspace& workspace,
                                const ExecutionContext& context, const Epilogue& epilogue) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape, CheckShapes(map, input, weights));
  if (output.rows != map.num_outputs() || output.channels != shape.c_out ||
      output.dtype != shape.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("output: [", output.rows, ", ", output.channels, "] of ",
                     ToString(output.dtype), "; the convolution makes [", map.num_outputs(), ", ",
                     shape.c_out, "] of ", ToString(shape.dtype)));
  }
  const Support support = dataflow.Supports(shape, context.backend->kind());
  if (!support.ok) return absl::UnimplementedError(absl::StrCat("dataflow: ", support.reason));

  const LayoutRequest request = dataflow.RequiredLayout(map.num_offsets());
  std::optional<KernelMap> converted;
  if (map.layout() != request) {
    VOXCONV_ASSIGN_OR_RETURN(converted, context.backend->ConvertKernelMap(map, request, context));
  }
  const KernelMap& used = converted.has_value() ? *converted : map;
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<DataflowPlan> plan,
                           NonNull(dataflow.Plan(used, shape, context), "dataflow: Plan"));
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
  return Forward(dataflow, *plan, used, {input, weights, output, epilogue}, workspace, context);
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
  VOXCONV_RETURN_IF_ERROR(Forward(
      dataflow, plan, map, {input, weights, output.view(), epilogue, settled}, workspace, context));
  return output;
}

}  // namespace voxconv
