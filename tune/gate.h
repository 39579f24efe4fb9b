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

namespace voxconv::tune {

// The tensors of one shape, in the backend's memory.
class LayerData {
 public:
  // Features and weights are deterministic values in [-1, 1). The weights are scaled so that
  // outputs stay in the range of f16. The shift is that of a folded batch norm. Errors of
  // Tensor::FromHost.
  static absl::StatusOr<LayerData> Create(int64_t num_inputs, const ConvShape& shape,
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

  // The same over `map`, which has any form, with the output on the host. Elements that
  // `dataflow` does not write are NaN. Synchronises the stream.
  absl::StatusOr<std::vector<float>> Output(const Dataflow& dataflow, const KernelMap& map,
                                            const PreparedWeights* weights, Workspace& workspace,
                                            const ExecutionContext& context) const;

  const ConvShape& shape() const { return shape_; }

 private:
  ConvShape shape_;
  Tensor features_, weights_;
  Array<float> shift_;
};

// Checks mapping and dataflow against the fp64 reference: the map must be exact, and features must
// be within the bounds of verify. `params` is the geometry of the layer. `rows` are the voxels of
// its finer side. A crop of them is taken that the reference can do in a second. Synchronises the
// stream.
absl::Status CheckOnCrop(const Mapping& mapping, const Dataflow& dataflow,
                         const GeometryParams& params, absl::Span<const Coordinate> rows,
                         const Int3& tensor_stride, const ConvShape& shape,
                         const ExecutionContext& context);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_GATE_H_
