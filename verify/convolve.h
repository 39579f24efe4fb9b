// SPDX-License-Identifier: Apache-2.0
// The one way in which gates run a convolution.
#ifndef VOXCONV_VERIFY_CONVOLVE_H_
#define VOXCONV_VERIFY_CONVOLVE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/convolution.h"
#include "voxconv/verify/oracle.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// The shape of the convolution of these operands over `map`.
ConvShape ShapeOf(const KernelMap& map, const Operands& operands);

// RunConvolution onto an output that is NaN before, so that an element that the dataflow does not
// write is seen.
absl::StatusOr<Tensor> ConvolveOntoNan(const Dataflow& dataflow, const KernelMap& map,
                                       const ConstTensorView& input, const ConstTensorView& weights,
                                       Precision precision, Workspace& workspace,
                                       const ExecutionContext& context,
                                       const Epilogue& epilogue = {}, const KeptPasses& kept = {});

// The same with operands and output on the host. `map` has any form, in the backend's memory.
// With `prepares_weights` the dataflow prepares the weights before (Dataflow::PrepareWeights).
// Synchronises the stream.
absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const Operands& operands,
                                            const ExecutionContext& context,
                                            const HostEpilogue& epilogue = {},
                                            bool prepares_weights = false);

// Calls Convolve, and checks its output against the bounds of the exact one (CheckOutput). With
// `problem`, whose convolution it is, the message names voxels and offsets.
absl::Status CheckConvolution(const Dataflow& dataflow, const KernelMap& map,
                              const ExactConvolution& exact, const ExecutionContext& context,
                              const HostEpilogue& epilogue = {}, const Problem* problem = nullptr);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_CONVOLVE_H_
