// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/run/confusion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "voxconv/core/check.h"

namespace voxconv {

NonFiniteRows FindNonFiniteRows(absl::Span<const float> logits, absl::Span<const int32_t> labels,
                                int64_t classes, int32_t ignored) {
  NonFiniteRows rows;
  for (size_t row = 0; row < labels.size(); ++row) {
    const auto values = logits.subspan(row * classes, classes);
    const bool finite =
        std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    if (finite || labels[row] == ignored) continue;
    if (rows.count++ == 0) rows.first = static_cast<int64_t>(row);
  }
  return rows;
}

void Confusion::Add(absl::Span<const float> logits, absl::Span<const int32_t> labels,
                    int32_t ignored) {
  VOXCONV_CHECK(logits.size() == labels.size() * classes_);
  VOXCONV_CHECK(FindNonFiniteRows(logits, labels, classes_, ignored).count == 0);
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == ignored) continue;
    const auto values = logits.subspan(row * classes_, classes_);
    const auto prediction = std::max_element(values.begin(), values.end()) - values.begin();
    ++counts_[labels[row] * classes_ + prediction];
  }
}

int64_t Confusion::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

double Confusion::Accuracy() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += count(c, c);
  return static_cast<double>(right) / static_cast<double>(std::max<int64_t>(total(), 1));
}

double Confusion::IntersectionOverUnion(int64_t label) const {
  int64_t either = -count(label, label);
  for (int64_t c = 0; c < classes_; ++c) either += count(label, c) + count(c, label);
  if (either == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(count(label, label)) / static_cast<double>(either);
}

double Confusion::MeanIntersectionOverUnion() const {
  double sum = 0;
  int64_t present = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    const double iou = IntersectionOverUnion(c);
    if (std::isnan(iou)) continue;
    sum += iou;
    ++present;
  }
  return present == 0 ? 0 : sum / static_cast<double>(present);
}

}  // namespace voxconv
