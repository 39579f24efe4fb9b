// The numeric check that a candidate must pass before it is timed.
#ifndef VOXCONV_TUNE_GATE_H_
#define VOXCONV_TUNE_GATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/dataflow.h"
#include "core/mapping.h"
#include "core/workspace.h"

namespace voxconv::tune {

// One shape's data in the backend's memory, and what its outputs are held against.
class LayerData {
 public:
  // Features and weights are deterministic values in [-1, 1); the weights are scaled so that
  // outputs stay in the range of f16. The shift is that of a folded batch norm.
  static absl::StatusOr<LayerData> Create(int64_t num_inputs, const ConvShape& shape,
                                          const ExecutionContext& context);

  // Convolution, shift and ReLU as a network runs them, which keeps plans: `plan` is `dataflow`'s
  // for this map and shape.
  absl::StatusOr<Tensor> Run(const Dataflow& dataflow, const DataflowPlan& plan,
                             const PreparedMap& map, Workspace& workspace,
                             const ExecutionContext& context) const;

  // The output of `dataflow` on the host, over `map` in either form; rows that it does not write
  // come out as NaN.
  absl::StatusOr<std::vector<float>> Output(const Dataflow& dataflow, const KernelMap& map,
                                            Workspace& workspace,
                                            const ExecutionContext& context) const;

  const ConvShape& shape() const { return shape_; }

 private:
  ConvShape shape_;
  Tensor features_, weights_;
  Array<float> shift_;
};

// Holds mapping and dataflow against the fp64 reference on rows of the layer's finer side: the map
// exactly, features within the bound of verify. `params` is the layer's; `rows` are its finer
// side's, of which a crop is taken that the reference can do in a second.
absl::Status CheckOnCrop(const Mapping& mapping, const Dataflow& dataflow,
                         const GeometryParams& params, absl::Span<const Coordinate> rows,
                         const Int3& tensor_stride, const ConvShape& shape,
                         const ExecutionContext& context);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_GATE_H_
