// SPDX-License-Identifier: Apache-2.0
// The oracle of training: loss and gradients of whole networks in fp64.
#ifndef VOXCONV_TRAINING_REFERENCE_GRADIENTS_H_
#define VOXCONV_TRAINING_REFERENCE_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/types.h"
#include "voxconv/networks/graph.h"
#include "voxconv/training/reference_loss.h"

namespace voxconv {

struct ReferenceGradients {
  double loss = 0;
  std::vector<double> logits;  // [rows, classes]
  // By parameter of the graph; empty for running statistics.
  std::vector<std::vector<double>> parameters;
  // By node: mean and biased variance of the inputs of each batch norm, [C] each; empty for others.
  std::vector<std::vector<double>> means, variances;
};

// Interprets a graph on one set of voxels with reference_cpu, and shares nothing with the trainer.
// Batch norms take the statistics of the batch. Slow: meant for scenes of some thousand voxels.
class ReferenceTraining {
 public:
  // Makes coordinates and brute-force maps of all layers. `coordinates`: rows of the graph's input
  // tensor stride, on the host. kInvalidArgument for what the oracle refuses.
  static absl::StatusOr<std::unique_ptr<ReferenceTraining>> Create(
      const NetworkGraph& graph, absl::Span<const Coordinate> coordinates);
  virtual ~ReferenceTraining() = default;

  // `parameters`: values by parameter of the graph; those of running statistics are not read.
  // `features`: [rows, in_channels]. `labels`: one for each row of the output. kInvalidArgument for
  // sizes that do not fit and labels that are no class.
  // `dropout`: which values dropout sets to 0 (DropoutSeed in core/training_step.h).
  struct Dropout {
    uint64_t seed = 0;
    int64_t step = 0;
  };
  virtual absl::StatusOr<ReferenceGradients> Compute(
      const std::vector<std::vector<double>>& parameters, absl::Span<const double> features,
      absl::Span<const int32_t> labels, const ReferenceLoss& loss,
      const Dropout& dropout) const = 0;
  absl::StatusOr<ReferenceGradients> Compute(const std::vector<std::vector<double>>& parameters,
                                             absl::Span<const double> features,
                                             absl::Span<const int32_t> labels,
                                             const ReferenceLoss& loss) const {
    return Compute(parameters, features, labels, loss, Dropout());
  }
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_REFERENCE_GRADIENTS_H_
