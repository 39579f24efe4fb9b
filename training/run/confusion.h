// SPDX-License-Identifier: Apache-2.0
// How often which class was taken for which.
#ifndef VOXCONV_TRAINING_RUN_CONFUSION_H_
#define VOXCONV_TRAINING_RUN_CONFUSION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace voxconv {

// Rows with a logit that is not finite. Rows with the label `ignored` do not count.
struct NonFiniteRows {
  int64_t count = 0;
  int64_t first = 0;  // if there is one
};
NonFiniteRows FindNonFiniteRows(absl::Span<const float> logits, absl::Span<const int32_t> labels,
                                int64_t classes, int32_t ignored);

class Confusion {
 public:
  explicit Confusion(int64_t classes)
      : classes_(classes), counts_(classes * classes, 0), not_finite_(classes, 0) {}

  // Counts the rows of `logits`, [labels.size(), classes]. The prediction is the largest logit, the
  // first of equals. A row with a logit that is not finite has no prediction. Rows with the label
  // `ignored` do not count.
  void Add(absl::Span<const float> logits, absl::Span<const int32_t> labels, int32_t ignored);

  int64_t classes() const { return classes_; }
  // Rows of class `label` that were predicted as `prediction`.
  int64_t count(int64_t label, int64_t prediction) const {
    return counts_[label * classes_ + prediction];
  }
  // Rows of class `label` without a prediction.
  int64_t not_finite(int64_t label) const { return not_finite_[label]; }
  int64_t not_finite() const;  // of all classes
  int64_t total() const;       // all rows that count, with and without a prediction

  // The share of rows that were predicted right; 0 without rows. A row without a prediction is
  // wrong.
  double Accuracy() const;
  // Of one class: right predictions over all rows that have the class, with or without a
  // prediction, or were predicted as it. NaN if there are none.
  double IntersectionOverUnion(int64_t label) const;
  // The mean over the classes that are there; 0 without rows.
  double MeanIntersectionOverUnion() const;

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> not_finite_;
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_RUN_CONFUSION_H_
