// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/reference_loss.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace voxconv {
namespace {

using Values = std::vector<double>;

// [rows, classes].
Values Softmax(absl::Span<const double> logits, int64_t classes) {
  Values p(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += classes) {
    const double* z = logits.data() + begin;
    const double largest = *std::max_element(z, z + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
    for (int64_t c = 0; c < classes; ++c) p[begin + c] = std::exp(z[c] - largest) / sum;
  }
  return p;
}

void AddCrossEntropy(absl::Span<const double> logits, int64_t classes,
                     absl::Span<const int32_t> labels, const ReferenceLoss& loss,
                     ReferenceLossResult& result) {
  const Values weights = loss.class_weights.empty() ? Values(classes, 1.0) : loss.class_weights;
  double total = 0;
  for (const int32_t label : labels) {
    if (label != loss.ignored) total += weights[label];
  }
  const auto rows = static_cast<int64_t>(labels.size());
  for (int64_t row = 0; row < rows && total > 0; ++row) {
    if (labels[row] == loss.ignored) continue;
    const double* z = logits.data() + row * classes;
    const double largest = *std::max_element(z, z + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
    for (int64_t c = 0; c < classes; ++c) {
      const double target = (c == labels[row] ? (1 - loss.smoothing) * weights[c] : 0.0) +
                            loss.smoothing / static_cast<double>(classes) * weights[c];
      result.loss += target * (largest + std::log(sum) - z[c]) / total;
      for (int64_t d = 0; d < classes; ++d) {
        const double share = std::exp(z[d] - largest) / sum;
        result.gradient[row * classes + d] += target * (share - (c == d ? 1.0 : 0.0)) / total;
      }
    }
  }
}

// The Jaccard loss of class c when the first `count` rows of `order` are predicted wrongly and all
// others rightly: 1 - |rightly found| / |of the class or wrongly found|.
double JaccardLoss(absl::Span<const int64_t> order, size_t count, absl::Span<const int32_t> labels,
                   int64_t c) {
  double intersection = 0, all = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_own = labels[order[i]] == c, is_wrong = i < count;
    if (is_own && !is_wrong) intersection += 1;
    if (is_own || is_wrong) all += 1;
  }
  return all == 0 ? 0.0 : 1 - intersection / all;
}

// The Lovász extension: the sum over the rows, from the largest error to the smallest, of the error
// times what the row adds to the Jaccard loss (Berman et al., 2018, equations 8 and 9).
void AddLovasz(absl::Span<const double> logits, int64_t classes, absl::Span<const int32_t> labels,
               const ReferenceLoss& loss, ReferenceLossResult& result) {
  const Values p = Softmax(logits, classes);
  std::vector<int64_t> counted;
  std::vector<bool> has_class(classes, false);
  for (int64_t row = 0; row < static_cast<int64_t>(labels.size()); ++row) {
    if (labels[row] == loss.ignored) continue;
    counted.push_back(row);
    has_class[labels[row]] = true;
  }
  const auto present = static_cast<double>(std::count(has_class.begin(), has_class.end(), true));
  Values by_p(p.size(), 0.0);
  for (int64_t c = 0; c < classes; ++c) {
    if (!has_class[c]) continue;
    const auto error = [&](int64_t row) {
      const double own = p[row * classes + c];
      return labels[row] == c ? 1 - own : own;
    };
    std::vector<int64_t> order = counted;
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return error(a) > error(b); });
    for (size_t i = 0; i < order.size(); ++i) {
      const double growth = JaccardLoss(order, i + 1, labels, c) - JaccardLoss(order, i, labels, c);
      result.loss += error(order[i]) * growth / present;
      by_p[order[i] * classes + c] = (labels[order[i]] == c ? -growth : growth) / present;
    }
  }
  for (const int64_t row : counted) {
    const int64_t begin = row * classes;
    for (int64_t c = 0; c < classes; ++c) {
      for (int64_t d = 0; d < classes; ++d) {  // dp[c] / dz[d]
        const double slope = p[begin + c] * ((c == d ? 1.0 : 0.0) - p[begin + d]);
        result.gradient[begin + d] += by_p[begin + c] * slope;
      }
    }
  }
}

}  // namespace

ReferenceLossResult ComputeReferenceLoss(absl::Span<const double> logits, int64_t classes,
                                         absl::Span<const int32_t> labels,
                                         const ReferenceLoss& loss) {
  if (labels.size() * classes != logits.size()) {
    throw std::invalid_argument("labels: not one for each row");
  }
  for (const int32_t label : labels) {
    if (label != loss.ignored && (label < 0 || label >= classes)) {
      throw std::invalid_argument("labels: no class");
    }
  }
  ReferenceLossResult result;
  result.gradient.assign(logits.size(), 0.0);
  if (loss.cross_entropy) AddCrossEntropy(logits, classes, labels, loss, result);
  if (loss.lovasz) AddLovasz(logits, classes, labels, loss, result);
  return result;
}

}  // namespace voxconv
