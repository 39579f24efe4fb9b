// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "voxconv/backends/cpu/column_sums.h"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

// With label smoothing s, a row of label t has the target (1 - s) * weight[t] at class t, and
// s / classes * weight[c] at every class c.
class CrossEntropy {
 public:
  explicit CrossEntropy(const CrossEntropyArgs& args)
      : args_(args), classes_(args.logits.channels), spread_(args.smoothing / classes_) {
    for (int64_t c = 0; c < classes_; ++c) all_weights_ += WeightOf(c);
  }

  double WeightOf(int64_t c) const {
    return args_.class_weights == nullptr ? 1.0 : args_.class_weights[c];
  }
  bool IsClass(int64_t label) const { return label >= 0 && label < classes_; }
  // Whether the row counts.
  bool Counts(int64_t row) const {
    return args_.labels[row] != args_.ignored && IsClass(args_.labels[row]);
  }

  // The row's loss, and its gradient times `factor`.
  double Row(int64_t row, double factor, float* gradient) const {
    const float* logits = Logits(row);
    const int64_t label = args_.labels[row];
    const double largest = *std::max_element(logits, logits + classes_);
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += std::exp(logits[c] - largest);
    const double log_sum = largest + std::log(sum);
    const double own = (1.0 - args_.smoothing) * WeightOf(label);
    const double all = own + spread_ * all_weights_;
    double loss = own * (log_sum - logits[label]);
    for (int64_t c = 0; c < classes_; ++c) {
      const double part = spread_ * WeightOf(c);
      if (part > 0) loss += part * (log_sum - logits[c]);
      const double target = part + (c == label ? own : 0.0);
      const double share = std::exp(logits[c] - log_sum);
      gradient[c] = static_cast<float>((all * share - target) * factor);
    }
    if (!std::isfinite(loss)) std::fill_n(gradient, classes_, std::nanf(""));
    return loss;
  }

  bool IsCorrect(int64_t row) const {
    const float* logits = Logits(row);
    return std::max_element(logits, logits + classes_) - logits == args_.labels[row];
  }

 private:
  const float* Logits(int64_t row) const { return args_.logits.f32() + row * classes_; }

  const CrossEntropyArgs& args_;
  const int64_t classes_;
  const double spread_;
  double all_weights_ = 0;
};

}  // namespace

absl::Status CpuCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                             LossResult* result, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckCrossEntropy(args, gradient, result, *context.backend));
  const CrossEntropy entropy(args);
  const int64_t rows = args.logits.rows, classes = args.logits.channels;
  enum { kWeight, kRows, kCorrect, kBad, kSums };
  const std::vector<double> sums = SumRows(context, rows, kSums, [&](int64_t row, double* to) {
    if (args.labels[row] == args.ignored) return;
    if (!entropy.IsClass(args.labels[row])) {
      to[kBad] += 1;
      return;
    }
    to[kWeight] += entropy.WeightOf(args.labels[row]);
    to[kRows] += 1;
    if (entropy.IsCorrect(row)) to[kCorrect] += 1;
  });
  const double weight = sums[kWeight];
  const double scale = args.gradient_scale == nullptr ? 1.0 : *args.gradient_scale;
  const double loss = SumRows(context, rows, 1, [&](int64_t row, double* to) {
    float* row_gradient = gradient.f32() + row * classes;
    if (entropy.Counts(row) && weight > 0) {
      *to += entropy.Row(row, scale / weight, row_gradient);
    } else {
      std::fill_n(row_gradient, classes, 0.0f);
    }
  })[0];
  *result = {.loss = weight > 0 ? loss / weight : 0.0,
             .weight = weight,
             .rows = static_cast<int64_t>(sums[kRows]),
             .correct = static_cast<int64_t>(sums[kCorrect]),
             .bad_labels = static_cast<int64_t>(sums[kBad])};
  return absl::OkStatus();
}

}  // namespace voxconv
