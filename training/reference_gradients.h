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
  // Elements of ReLUs that took the given side and not their own (ReluSides), and the largest
  // magnitude that such an input of a ReLU had, in root mean squares of all inputs of that ReLU.
  int64_t forced = 0;
  double furthest_forced = 0;
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
  // By node that ends with a ReLU: 1 for each element of its result that is positive, in another
  // run of the same layers, else 0. The oracle then lets those elements through that have 1. A run
  // that rounds may take the other side where an input is within rounding of 0; what is compared
  // with it must take the same. An empty vector: the oracle's own sides.
  using ReluSides = std::vector<std::vector<uint8_t>>;
  virtual absl::StatusOr<ReferenceGradients> Compute(
      const std::vector<std::vector<double>>& parameters, absl::Span<const double> features,
      absl::Span<const int32_t> labels, const ReferenceLoss& loss, const Dropout& dropout,
      const ReluSides& sides) const = 0;
  absl::StatusOr<ReferenceGradients> Compute(const std::vector<std::vector<double>>& parameters,
                                             absl::Span<const double> features,
                                             absl::Span<const int32_t> labels,
                                             const ReferenceLoss& loss,
                                             const Dropout& dropout) const {
    return Compute(parameters, features, labels, loss, dropout, ReluSides());
  }
  absl::StatusOr<ReferenceGradients> Compute(const std::vector<std::vector<double>>& parameters,
                                             absl::Span<const double> features,
                                             absl::Span<const int32_t> labels,
                                             const ReferenceLoss& loss) const {
    return Compute(parameters, features, labels, loss, Dropout());
  }
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_REFERENCE_GRADIENTS_H_
