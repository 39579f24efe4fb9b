// The straight line of one convolution: output coordinates -> index build -> map query -> layout
// conversion -> dataflow.
#ifndef VOXCONV_CORE_CONVOLUTION_H_
#define VOXCONV_CORE_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "core/mapping.h"

namespace voxconv {

// Whether `map`, which a mapping returned for `problem`, may be handed on: its layout is kPairs or
// kNeighbourTable, its numbers of inputs, outputs and offsets are the problem's, and its arrays
// have their sizes (KernelMap::CheckSizes). kInternal where not: the mapping is wrong.
// O(num_offsets); queues no work. What the arrays hold is for KernelMap::Validate.
absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem);

// Index build and map query: the map in the layout that the mapping emits. Refuses what the mapping
// does not support, with its reason (kUnimplemented), inputs of another tensor stride than the
// geometry's (kInvalidArgument), and a map that CheckQueriedMap refuses.
absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context);

// The same, and conversion to `request` (its own timed stage; skipped where the mapping emits that
// layout).
absl::StatusOr<KernelMap> BuildKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const LayoutRequest& request,
                                         const ExecutionContext& context);

// Plans, books, grants and runs one convolution, the sum of core/dataflow.h. All tensors are in the
// backend's memory and of one dtype: `input` [N_in, C_in], `weights` [K * C_in, C_out]; the result
// is a new one, [N_out, C_out]. `map` is in any layout and is converted where the dataflow needs
// another. `workspace` is reused from call to call. `epilogue` is fused where the dataflow can, and
// runs after it otherwise. Queued on the context's stream; waits for the device only where the
// conversion does. kInvalidArgument names rows, channels or a dtype that do not fit, with both
// values; kUnimplemented gives the dataflow's reason, kResourceExhausted what was asked for.
absl::StatusOr<Tensor> RunConvolution(const Dataflow& dataflow, const KernelMap& map,
                                      const TensorView& input, const TensorView& weights,
                                      Workspace& workspace, const ExecutionContext& context,
                                      const Epilogue& epilogue = {});

// The same onto `output`, [N_out, C_out] of the features' dtype, which is overwritten entirely and
// overlaps neither input nor weights.
absl::Status RunConvolutionOnto(const Dataflow& dataflow, const KernelMap& map,
                                const TensorView& input, const TensorView& weights,
                                const TensorView& output, Workspace& workspace,
                                const ExecutionContext& context, const Epilogue& epilogue = {});

// RunConvolution for callers that keep plans: `plan` is `dataflow`'s, of this map, which is in the
// layout that it takes, and for these channels and this dtype. `settled`: see ForwardArgs.
absl::StatusOr<Tensor> RunPlannedConvolution(const Dataflow& dataflow, const DataflowPlan& plan,
                                             const KernelMap& map, const TensorView& input,
                                             const TensorView& weights, Workspace& workspace,
                                             const ExecutionContext& context,
                                             const Epilogue& epilogue = {}, bool settled = false);

}  // namespace voxconv

#endif  // VOXCONV_CORE_CONVOLUTION_H_
