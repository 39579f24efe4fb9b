// SPDX-License-Identifier: Apache-2.0
// The gradients of one layer: what they are computed of, how gates run them, and what they must be.
#ifndef VOXCONV_VERIFY_GRADIENTS_H_
#define VOXCONV_VERIFY_GRADIENTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/tensor.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/oracle.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// What a layer is given, as the dtype holds it, and the oracle's map in both directions. Host
// memory.
struct GradProblem {
  const Problem* problem = nullptr;
  CaseShape shape;
  reference::ConvShape sizes;
  std::vector<float> x, w, dy;  // [N_in, C_in], [K * C_in, C_out], [N_out, C_out]
  reference::KernelMap transposed;
};
// With random values. `problem` must outlive the result.
GradProblem MakeGradProblem(const Problem& problem, const CaseShape& shape);

// The input gradient is a convolution of dy over the transposed map (H-CNN, Equation 8): its
// operands.
Operands InputGradOperands(const GradProblem& grad);

// One weight gradient. `x` and `dy` are [N_in, C_in] and [N_out, C_out] of `sizes`.
struct WeightGradSums {
  const reference::KernelMap& map;
  reference::ConvShape sizes;
  Precision precision = Precision::kF32;
  // What the sums are stored as: kF32 stands for f32, whatever the products' precision is.
  Precision stored = Precision::kF32;
  const std::vector<float>& x;
  const std::vector<float>& dy;
};
// [K * C_in, C_out]. O(pairs * C_in * C_out).
Expected ExpectedWeightGrad(const WeightGradSums& sums);

// The layer's tensors in a backend's memory.
struct GradTensors {
  Tensor x, w, dy;

  static absl::StatusOr<GradTensors> Create(const GradProblem& grad,
                                            const ExecutionContext& context);
};

// Runs kInputGrad or kWeightGrad of `dataflow` onto a tensor that is NaN before, so that an element
// that the dataflow does not write is seen. Returns dx in the dtype of x, or dw in `weights_grad`,
// in the backend's memory. Only queues. Errors of the dataflow.
absl::StatusOr<Tensor> RunGradient(Pass pass, const Dataflow& dataflow, const KernelMap& map,
                                   const GradTensors& tensors, Precision precision,
                                   DType weights_grad, const ExecutionContext& context);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_GRADIENTS_H_
