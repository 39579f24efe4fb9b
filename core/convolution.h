// The straight line of one convolution: output coordinates -> index build -> map query -> prepared
// map -> dataflow.
#ifndef VOXCONV_CORE_CONVOLUTION_H_
#define VOXCONV_CORE_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "core/mapping.h"

namespace voxconv {

// The shape of a layer that computes with `precision` throughout.
ConvShape ShapeOfLayer(const ConvGeometry& geometry, int64_t c_in, int64_t c_out,
                       Precision precision);

// Builds the index and queries the map, in the form that the mapping makes. kUnimplemented gives
// the mapping's reason. kInvalidArgument for inputs of another tensor stride than the geometry's.
// kInternal for a map that CheckQueriedMap refuses.
absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context);

// The same as canonical pairs.
absl::StatusOr<KernelMap> QueryPairs(const Mapping& mapping, const MapProblem& problem,
                                     const ExecutionContext& context);

// What `dataflow` reads in `pass`, made of the layer's map, which may have either form. Transposes
// it, changes its form and prepares it as NeededMap asks. Records Stage::kConvert. Queued on the
// context's stream. Synchronises it only where pairs must be counted first (MapOps::To).
absl::StatusOr<std::shared_ptr<const PreparedMap>> PrepareMap(const Dataflow& dataflow, Pass pass,
                                                              const ConvShape& shape,
                                                              const KernelMap& map,
                                                              const ExecutionContext& context);

// The functions below compute one pass of a layer with the map `map` (its forward map, whatever the
// pass): they prepare it, plan, grant `workspace` and run. Products are computed in `precision`.
// `workspace` is reused from call to call. Tensors are in the backend's memory, with the shapes and
// dtypes that core/dataflow.h gives. kInvalidArgument names a tensor that does not fit and both
// values; kUnimplemented gives the dataflow's reason; kResourceExhausted says how much memory was
// asked for. They are queued on the context's stream, and wait for the device only where PrepareMap
// does.

// A new tensor [N_out, C_out] of the features' dtype. The epilogue is fused where the dataflow can,
// and applied afterwards elsewhere.
absl::StatusOr<Tensor> RunConvolution(const Dataflow& dataflow, const KernelMap& map,
                                      const ConstTensorView& input, const ConstTensorView& weights,
                                      Precision precision, Workspace& workspace,
                                      const ExecutionContext& context,
                                      const Epilogue& epilogue = {});
// The same onto `output`.
absl::Status RunConvolutionOnto(const Dataflow& dataflow, const KernelMap& map,
                                const ConstTensorView& input, const ConstTensorView& weights,
                                Precision precision, const TensorView& output, Workspace& workspace,
                                const ExecutionContext& context, const Epilogue& epilogue = {});
absl::Status RunInputGrad(const Dataflow& dataflow, const KernelMap& map, const InputGradArgs& args,
                          Precision precision, Workspace& workspace,
                          const ExecutionContext& context);
absl::Status RunWeightGrad(const Dataflow& dataflow, const KernelMap& map,
                           const WeightGradArgs& args, Precision precision, Workspace& workspace,
                           const ExecutionContext& context);

// For callers that keep plans: a new tensor [N_out, C_out], computed by `plan` with the map that it
// was made for. `settled`: see ForwardArgs.
absl::StatusOr<Tensor> RunPlannedConvolution(const Dataflow& dataflow, const DataflowPlan& plan,
                                             const PreparedMap& map, const ConstTensorView& input,
                                             const ConstTensorView& weights, Workspace& workspace,
                                             const ExecutionContext& context,
                                             const Epilogue& epilogue = {}, bool settled = false);

}  // namespace voxconv

#endif  // VOXCONV_CORE_CONVOLUTION_H_
