// The one way in which gates run a convolution.
#ifndef VOXCONV_VERIFY_CONVOLVE_H_
#define VOXCONV_VERIFY_CONVOLVE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/convolution.h"
#include "verify/oracle.h"

namespace voxconv::verify {

// Of the convolution of these operands over `map`.
ConvShape ShapeOf(const KernelMap& map, const Operands& operands);

// RunConvolution onto an output of NaN: an element that the dataflow leaves out shows.
absl::StatusOr<Tensor> ConvolveOntoNan(const Dataflow& dataflow, const KernelMap& map,
                                       const ConstTensorView& input, const ConstTensorView& weights,
                                       Precision precision, Workspace& workspace,
                                       const ExecutionContext& context,
                                       const Epilogue& epilogue = {});

// The same with operands from the host and the output back there. `map` is in either form.
// Synchronises the stream.
absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const Operands& operands,
                                            const ExecutionContext& context,
                                            const HostEpilogue& epilogue = {});

// Convolve, and its output within the bounds of the exact one: CheckOutput.
absl::Status CheckConvolution(const Dataflow& dataflow, const KernelMap& map,
                              const ExactConvolution& exact, const ExecutionContext& context,
                              const HostEpilogue& epilogue = {});

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_CONVOLVE_H_
