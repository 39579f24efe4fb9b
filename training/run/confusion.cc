// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/run/confusion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "voxconv/core/check.h"

namespace voxconv {
namespace {

bool AreFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

NonFiniteRows FindNonFiniteRows(absl::Span<const float> logits, absl::Span<const int32_t> labels,
                                int64_t classes, int32_t ignored) {
  NonFiniteRows rows;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == ignored || AreFinite(logits.subspan(row * classes, classes))) continue;
    if (rows.count++ == 0) rows.first = static_cast<int64_t>(row);
  }
  return rows;
}

void Confusion::Add(absl::Span<const float> logits, absl::Span<const int32_t> labels,
                    int32_t ignored) {
  VOXCONV_CHECK(logits.size() == labels.size() * classes_);
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == ignored) continue;
    const auto values = logits.subspan(row * classes_, classes_);
    if (!AreFinite(values)) {
      ++not_finite_[labels[row]];
      continue;
    }
    const auto prediction = std::max_element(values.begin(), values.end()) - values.begin();
    ++counts_[labels[row] * classes_ + prediction];
  }
}

int64_t Confusion::not_finite() const {
  return std::accumulate(not_finite_.begin(), not_finite_.end(), int64_t{0});
}

int64_t Confusion::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), not_finite());
}

double Confusion::Accuracy() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += count(c, c);
  return static_cast<double>(right) / static_cast<double>(std::max<int64_t>(total(), 1));
}

double Confusion::IntersectionOverUnion(int64_t label) const {
  int64_t either = not_finite(label) - count(label, label);
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
