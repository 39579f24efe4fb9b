// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/convolve.h"

#include <memory>

#include "voxconv/verify/difference.h"

namespace voxconv::verify {

ConvShape ShapeOf(const KernelMap& map, const Operands& operands) {
  return {.c_in = operands.shape.c_in,
          .c_out = operands.shape.c_out,
          .num_offsets = map.num_offsets(),
          .symmetric = map.symmetric(),
          .types = ConvTypes::Of(operands.precision)};
}

absl::StatusOr<Tensor> ConvolveOntoNan(const Dataflow& dataflow, const KernelMap& map,
                                       const ConstTensorView& input, const ConstTensorView& weights,
                                       Precision precision, Workspace& workspace,
                                       const ExecutionContext& context, const Epilogue& epilogue,
                                       const KeptPasses& kept) {
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor output, Tensor::Create(map.num_outputs(), weights.channels, input.dtype, context));
  const TensorView& view = output.view();
  // All bits set is NaN in every dtype.
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(view.data, 0xff, view.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(RunConvolutionOnto(dataflow, map, input, weights, precision, view,
                                             workspace, context, epilogue, kept));
  return output;
}

absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const Operands& operands,
                                            const ExecutionContext& context,
                                            const HostEpilogue& epilogue, bool prepares_weights) {
  const reference::ConvShape& shape = operands.shape;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor input, Tensor::FromHost(operands.features, shape.num_inputs, shape.c_in, context,
                                           StorageOf(operands.precision)));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor weights,
                           Tensor::FromHost(operands.weights, map.num_offsets() * shape.c_in,
                                            shape.c_out, context, StorageOf(operands.precision)));
  VOXCONV_ASSIGN_OR_RETURN(const Array<float> scale, CopyToBackend<float>(epilogue.scale, context));
  VOXCONV_ASSIGN_OR_RETURN(const Array<float> shift, CopyToBackend<float>(epilogue.shift, context));
  Tensor residual;
  if (!epilogue.residual.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(
        residual, Tensor::FromHost(epilogue.residual, shape.num_outputs, shape.c_out, context,
                                   StorageOf(operands.precision)));
  }
  std::unique_ptr<const PreparedWeights> prepared;
  if (prepares_weights) {
    VOXCONV_ASSIGN_OR_RETURN(
        prepared, dataflow.PrepareWeights(ShapeOf(map, operands), weights.view(), context));
  }
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor output,
      ConvolveOntoNan(
          dataflow, map, input.view(), weights.view(), operands.precision, workspace, context,
          {epilogue.scale.empty() ? nullptr : scale.data(),
           epilogue.shift.empty() ? nullptr : shift.data(), residual.view(), epilogue.relu},
          {.weights = prepared.get()}));
  return output.ToHost(context);
}

absl::Status CheckConvolution(const Dataflow& dataflow, const KernelMap& map,
                              const ExactConvolution& exact, const ExecutionContext& context,
                              const HostEpilogue& epilogue, const Problem* problem) {
  const Operands& operands = exact.operands();
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                           Convolve(dataflow, map, operands, context, epilogue));
  const Expected expected = exact.Expect(ExecutionOf(dataflow, ShapeOf(map, operands)), epilogue);
  if (problem == nullptr) return CheckOutput(output, expected);
  const LayerData layer{*problem, operands.shape.c_in, operands.features, operands.weights};
  return CheckOutput(output, expected, &layer);
}

}  // namespace voxconv::verify
