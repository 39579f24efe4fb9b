// SPDX-License-Identifier: Apache-2.0
// The checks of numbers that a candidate must pass before it is timed.
#ifndef VOXCONV_TUNE_GATE_H_
#define VOXCONV_TUNE_GATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/workspace.h"
#include "voxconv/verify/gate.h"

namespace voxconv::tune {

// Deterministic values in [-1, 1), rounded to a precision, in the backend's memory. All shapes of a
// search take their features from them.
class FeatureValues {
 public:
  // Errors of Tensor::FromHost.
  static absl::StatusOr<FeatureValues> Create(Precision precision, const ExecutionContext& context);

  // The values in their order, and again from the first one where they end. Their number is a prime
  // number above four million, so that rows repeat after as many rows. Queued on the context's
  // stream. Errors of Tensor::Create.
  absl::StatusOr<Tensor> Matrix(int64_t rows, int64_t channels,
                                const ExecutionContext& context) const;

 private:
  Tensor values_;
};

// The tensors of one shape, in the backend's memory.
class LayerData {
 public:
  // Weights are deterministic values in [-1, 1), scaled so that outputs stay in the range of f16.
  // `values` have the precision of the shape. The shift is that of a folded batch norm. Errors of
  // Tensor::FromHost.
  static absl::StatusOr<LayerData> Create(int64_t num_inputs, const ConvShape& shape,
                                          const FeatureValues& values,
                                          const ExecutionContext& context);

  // The weights as `dataflow` prepares them once for a network; null if it reads them as they are.
  // They must not outlive this. Errors of Dataflow::PrepareWeights.
  absl::StatusOr<std::unique_ptr<const PreparedWeights>> PrepareWeights(
      const Dataflow& dataflow, const ExecutionContext& context) const;

  // Convolution, shift and ReLU with a plan, as a network runs them. `plan` must have been made by
  // `dataflow` for this map and shape, and `weights` by PrepareWeights for `dataflow`. Queued on
  // the context's stream.
  absl::StatusOr<Tensor> Run(const Dataflow& dataflow, const DataflowPlan& plan,
                             const PreparedMap& map, const PreparedWeights* weights,
                             Workspace& workspace, const ExecutionContext& context) const;

  // The same over `map`, which has any form. Elements that `dataflow` does not write are NaN.
  absl::StatusOr<Tensor> Output(const Dataflow& dataflow, const KernelMap& map,
                                const PreparedWeights* weights, Workspace& workspace,
                                const ExecutionContext& context) const;

  const ConvShape& shape() const { return shape_; }

 private:
  ConvShape shape_;
  Tensor features_, weights_;
  Array<float> shift_;
};

// A layer with its geometry.
struct CropLayer {
  GeometryParams params;
  ConvShape shape;
};

// Each layer on a crop of `rows`, the voxels of the layers' finer side, that the fp64 reference can
// do in a second. Made by several threads. Errors of verify::CropReference::Create.
absl::StatusOr<std::vector<verify::CropReference>> CropReferences(
    absl::Span<const CropLayer> layers, absl::Span<const Coordinate> rows,
    const Int3& tensor_stride);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_GATE_H_
