// SPDX-License-Identifier: Apache-2.0
// The oracle of losses, in fp64. Slow and literal.
#ifndef VOXCONV_TRAINING_REFERENCE_LOSS_H_
#define VOXCONV_TRAINING_REFERENCE_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace voxconv {

// The loss, as CrossEntropyArgs and LovaszArgs describe it: the sum of those that are set.
struct ReferenceLoss {
  std::vector<double> class_weights;  // of cross-entropy; empty: all are 1
  int32_t ignored = -1;
  double smoothing = 0;  // of cross-entropy
  bool cross_entropy = true;
  bool lovasz = false;
};

struct ReferenceLossResult {
  double loss = 0;
  std::vector<double> gradient;  // [rows, classes]
};

// `logits`: [rows, classes]. Throws std::invalid_argument for labels that are not one for each row,
// or no class. Lovász-softmax takes O(classes * rows^2).
ReferenceLossResult ComputeReferenceLoss(absl::Span<const double> logits, int64_t classes,
                                         absl::Span<const int32_t> labels,
                                         const ReferenceLoss& loss);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_REFERENCE_LOSS_H_
