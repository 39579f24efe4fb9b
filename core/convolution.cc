// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/convolution.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

using Prepared = PreparedMaps::Prepared;

// A prepared map and a plan of one pass. The workspace is granted.
absl::StatusOr<Prepared> PreparePass(const Dataflow& dataflow, Pass pass, const ConvShape& shape,
                                     const KernelMap& map, const KeptPasses& kept,
                                     Workspace& workspace, const ExecutionContext& context) {
  PreparedMaps once;
  PreparedMaps& maps = kept.maps != nullptr ? *kept.maps : once;
  VOXCONV_ASSIGN_OR_RETURN(const Prepared prepared,
                           maps.Get(kept.spec, dataflow, pass, shape, map, context));
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(prepared.plan->booking(), context));
  return prepared;
}

// Of a layer with these tensors (x or dx, w or dw, y or dy).
absl::StatusOr<ConvShape> ShapeOf(const KernelMap& map, const ConstTensorView& input,
                                  const ConstTensorView& weights, DType output,
                                  Precision precision) {
  if (input.rows != map.num_inputs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features: ", input.rows, " rows; the kernel map has ", map.num_inputs(), " inputs"));
  }
  if (weights.rows != map.num_offsets() * input.channels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights: ", weights.rows, " rows; the kernel's ", map.num_offsets(), " offsets and ",
        input.channels, " input channels need ", map.num_offsets() * input.channels));
  }
  return ConvShape{.c_in = input.channels,
                   .c_out = weights.channels,
                   .num_offsets = map.num_offsets(),
                   .symmetric = map.symmetric(),
                   .types = {input.dtype, weights.dtype, output, precision, DType::kF32}};
}

// `map` as `need` says, but without a layout.
absl::StatusOr<KernelMap> InForm(const MapNeed& need, const KernelMap& map,
                                 const ExecutionContext& context) {
  MapOps& ops = context.backend->map_ops();
  KernelMap wanted = map;
  if (need.transposed) {
    VOXCONV_ASSIGN_OR_RETURN(wanted, ops.Transpose(wanted, context));
  }
  return ops.To(need.form, wanted, context);
}

// What pooling (kForward) or its transpose (kInputGrad) reads.
absl::StatusOr<std::shared_ptr<const PreparedMap>> PreparePooling(const Dataflow& dataflow,
                                                                  Pass pass, const KernelMap& map,
                                                                  const ExecutionContext& context) {
  const MapNeed need = dataflow.NeededPoolMap(pass, map.symmetric());
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap wanted, InForm(need, map, context));
  return dataflow.Prepare(wanted, need, context);
}

}  // namespace

ConvShape ShapeOfLayer(const ConvGeometry& geometry, int64_t c_in, int64_t c_out,
                       Precision precision) {
  return {.c_in = c_in,
          .c_out = c_out,
          .num_offsets = geometry.num_offsets(),
          .symmetric = geometry.symmetric(),
          .types = ConvTypes::Of(precision)};
}

absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context) {
  if (problem.inputs.tensor_stride() != problem.geometry.input_tensor_stride()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: tensor stride ", ToString(problem.inputs.tensor_stride()),
                     "; the geometry expects ", ToString(problem.geometry.input_tensor_stride())));
  }
  VOXCONV_RETURN_IF_ERROR(mapping.Supports(problem.geometry).ToStatus("mapping"));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           mapping.BuildIndex(problem.inputs, context));
  return mapping.Query(*index, problem, context);
}

absl::StatusOr<KernelMap> QueryPairs(const Mapping& mapping, const MapProblem& problem,
                                     const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, QueryKernelMap(mapping, problem, context));
  return context.backend->map_ops().To(MapForm::kPairs, map, context);
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> PrepareMap(const Dataflow& dataflow, Pass pass,
                                                              const ConvShape& shape,
                                                              const KernelMap& map,
                                                              const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(dataflow.Supports(pass, shape).ToStatus("dataflow"));
  const MapNeed need = dataflow.NeededMap(pass, shape);
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap wanted, InForm(need, map, context));
  return dataflow.Prepare(wanted, need, context);
}

absl::StatusOr<Tensor> RunConvolution(const Dataflow& dataflow, const KernelMap& map,
                                      const ConstTensorView& input, const ConstTensorView& weights,
                                      Precision precision, Workspace& workspace,
                                      const ExecutionContext& context, const Epilogue& epilogue,
                                      const KeptPasses& kept) {
  VOXCONV_RETURN_IF_ERROR(ShapeOf(map, input, weights, input.dtype, precision).status());
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor output, Tensor::Create(map.num_outputs(), weights.channels, input.dtype, context));
  VOXCONV_RETURN_IF_ERROR(RunConvolutionOnto(dataflow, map, input, weights, precision,
                                             output.view(), workspace, context, epilogue, kept));
  return output;
}

absl::Status RunConvolutionOnto(const Dataflow& dataflow, const KernelMap& map,
                                const ConstTensorView& input, const ConstTensorView& weights,
                                Precision precision, const TensorView& output, Workspace& workspace,
                                const ExecutionContext& context, const Epilogue& epilogue,
                                const KeptPasses& kept) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape,
                           ShapeOf(map, input, weights, output.dtype, precision));
  VOXCONV_ASSIGN_OR_RETURN(const Prepared prepared, PreparePass(dataflow, Pass::kForward, shape,
                                                                map, kept, workspace, context));
  return dataflow.Forward(*prepared.plan, *prepared.map,
                          {.input = input,
                           .weights = weights,
                           .output = output,
                           .epilogue = epilogue,
                           .prepared_weights = kept.weights},
                          workspace, context);
}

absl::Status RunInputGrad(const Dataflow& dataflow, const KernelMap& map, const InputGradArgs& args,
                          Precision precision, Workspace& workspace,
                          const ExecutionContext& context, const KeptPasses& kept) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape, ShapeOf(map, args.input_grad, args.weights,
                                                          args.output_grad.dtype, precision));
  VOXCONV_ASSIGN_OR_RETURN(const Prepared prepared, PreparePass(dataflow, Pass::kInputGrad, shape,
                                                                map, kept, workspace, context));
  return dataflow.InputGrad(*prepared.plan, *prepared.map, args, workspace, context);
}

absl::Status RunWeightGrad(const Dataflow& dataflow, const KernelMap& map,
                           const WeightGradArgs& args, Precision precision, Workspace& workspace,
                           const ExecutionContext& context, const KeptPasses& kept) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvShape shape, ShapeOf(map, args.input, args.weights_grad,
                                                          args.output_grad.dtype, precision));
  VOXCONV_ASSIGN_OR_RETURN(const Prepared prepared, PreparePass(dataflow, Pass::kWeightGrad, shape,
                                                                map, kept, workspace, context));
  return dataflow.WeightGrad(*prepared.plan, *prepared.map, args, workspace, context);
}

absl::Status RunPool(const Dataflow& dataflow, const KernelMap& map, const PoolArgs& args,
                     const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> prepared,
                           PreparePooling(dataflow, Pass::kForward, map, context));
  return dataflow.Pool(*prepared, args, context);
}

absl::Status RunUnpool(const Dataflow& dataflow, const KernelMap& map, const UnpoolArgs& args,
                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> prepared,
                           PreparePooling(dataflow, Pass::kInputGrad, map, context));
  return dataflow.Unpool(*prepared, args, context);
}

absl::StatusOr<Tensor> RunPlannedConvolution(const Dataflow& dataflow, const DataflowPlan& plan,
                                             const PreparedMap& map, const ConstTensorView& input,
                                             const ConstTensorView& weights, Workspace& workspace,
                                             const ExecutionContext& context,
                                             const Epilogue& epilogue, bool settled,
                                             const PreparedWeights* prepared_weights) {
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan.booking(), context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           Tensor::Create(map.map().num_outputs(), plan.shape().c_out,
                                          plan.shape().types.output, context));
  VOXCONV_RETURN_IF_ERROR(dataflow.Forward(
      plan, map, {input, weights, output.view(), epilogue, settled, prepared_weights}, workspace,
      context));
  return output;
}

}  // namespace voxconv
