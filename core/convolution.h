// SPDX-License-Identifier: Apache-2.0
// One convolution from its coordinates to its output: output coordinates, index, kernel map,
// prepared map, dataflow.
#ifndef VOXCONV_CORE_CONVOLUTION_H_
#define VOXCONV_CORE_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/prepared_maps.h"

namespace voxconv {

// The shape of a layer whose tensors are stored as StorageOf(precision).
ConvShape ShapeOfLayer(const ConvGeometry& geometry, int64_t c_in, int64_t c_out,
                       Precision precision);

// Builds the index and queries the map, in the form that the mapping makes. Stream behaviour and
// errors are those of Mapping::BuildIndex and Mapping::Query. kUnimplemented gives the reason why
// the mapping does not support the geometry. kInvalidArgument for inputs whose tensor stride is not
// the geometry's.
absl::StatusOr<KernelMap> QueryKernelMap(const Mapping& mapping, const MapProblem& problem,
                                         const ExecutionContext& context);

// The same, as canonical pairs (MapOps::To).
absl::StatusOr<KernelMap> QueryPairs(const Mapping& mapping, const MapProblem& problem,
                                     const ExecutionContext& context);

// Makes what `dataflow` reads in `pass` of the layer's `map`, which may have any form.
// Transposes the map, changes its form and prepares it, as far as Dataflow::NeededMap asks for
// that. Records Stage::kConvert. Queued on the context's stream. Synchronises it only if pairs must
// be counted first (MapOps::To). kUnimplemented gives the dataflow's reason where it does not
// support `shape`. Errors of MapOps and of Dataflow::Prepare.
absl::StatusOr<std::shared_ptr<const PreparedMap>> PrepareMap(const Dataflow& dataflow, Pass pass,
                                                              const ConvShape& shape,
                                                              const KernelMap& map,
                                                              const ExecutionContext& context);

// Where the functions below find what they made before for the same kernel map. `spec` names the
// dataflow (PreparedMaps::Get). Without `maps` they make it anew.
struct KeptPasses {
  PreparedMaps* maps = nullptr;
  absl::string_view spec = {};
  // Of the forward pass (ForwardArgs::prepared_weights), or null.
  const PreparedWeights* weights = nullptr;
};

// Each of the functions below computes one pass of a layer. It prepares the map, plans the pass,
// grants `workspace` and runs. `map` is the layer's forward map in every pass. Products are
// computed in `precision`. Several calls may share a workspace. Tensors are in the backend's
// memory, with the shapes that core/dataflow.h gives. The work is queued on the context's stream.
// The functions synchronise it only where PrepareMap does. kInvalidArgument names a tensor that
// does not fit, its value and what is allowed. kUnimplemented gives the reason why the dataflow
// does not support the shape. kResourceExhausted says how much memory was asked for.

// The forward pass. Returns a new tensor [N_out, C_out] of the input's dtype. The dataflow fuses
// the epilogue if it can. Otherwise the epilogue is applied afterwards.
absl::StatusOr<Tensor> RunConvolution(const Dataflow& dataflow, const KernelMap& map,
                                      const ConstTensorView& input, const ConstTensorView& weights,
                                      Precision precision, Workspace& workspace,
                                      const ExecutionContext& context,
                                      const Epilogue& epilogue = {}, const KeptPasses& kept = {});
// The same, with the output written to `output`.
absl::Status RunConvolutionOnto(const Dataflow& dataflow, const KernelMap& map,
                                const ConstTensorView& input, const ConstTensorView& weights,
                                Precision precision, const TensorView& output, Workspace& workspace,
                                const ExecutionContext& context, const Epilogue& epilogue = {},
                                const KeptPasses& kept = {});
absl::Status RunInputGrad(const Dataflow& dataflow, const KernelMap& map, const InputGradArgs& args,
                          Precision precision, Workspace& workspace,
                          const ExecutionContext& context, const KeptPasses& kept = {});
absl::Status RunWeightGrad(const Dataflow& dataflow, const KernelMap& map,
                           const WeightGradArgs& args, Precision precision, Workspace& workspace,
                           const ExecutionContext& context, const KeptPasses& kept = {});

// One pooling, and its transpose, through `dataflow` (Dataflow::Pool and Unpool). `map` is that of
// the pooling, in any form. Each prepares the map and runs. Stream behaviour is that of
// PrepareMap. Errors are those of MapOps and of Dataflow::Pool and Unpool.
absl::Status RunPool(const Dataflow& dataflow, const KernelMap& map, const PoolArgs& args,
                     const ExecutionContext& context);
absl::Status RunUnpool(const Dataflow& dataflow, const KernelMap& map, const UnpoolArgs& args,
                       const ExecutionContext& context);

// The forward pass for callers that keep plans. Returns a new tensor [N_out, C_out]. `plan` must
// have been made for `map`. Grants `workspace`. `settled` and `prepared_weights`: see ForwardArgs.
// Errors of Dataflow::Forward.
absl::StatusOr<Tensor> RunPlannedConvolution(const Dataflow& dataflow, const DataflowPlan& plan,
                                             const PreparedMap& map, const ConstTensorView& input,
                                             const ConstTensorView& weights, Workspace& workspace,
                                             const ExecutionContext& context,
                                             const Epilogue& epilogue = {}, bool settled = false,
                                             const PreparedWeights* prepared_weights = nullptr);

}  // namespace voxconv

#endif  // VOXCONV_CORE_CONVOLUTION_H_
