// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_lovasz.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "voxconv/backends/cpu/column_sums.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

class LovaszSoftmax {
 public:
  LovaszSoftmax(const LovaszArgs& args, const ExecutionContext& context)
      : args_(args),
        context_(context),
        rows_(args.logits.rows),
        classes_(args.logits.channels),
        probabilities_(rows_ * classes_),
        slopes_(rows_ * classes_, 0.0f) {}

  // The loss, and what LossResult has besides.
  LossResult Run() {
    const LossResult counted = ComputeProbabilities();
    std::vector<double> losses(classes_, 0.0);
    std::vector<char> present(classes_, 0);
    ParallelRanges(context_, classes_, 1, [&](int64_t c, int64_t) {
      present[c] = DifferentiateClass(c, losses[c]) ? 1 : 0;
    });
    LossResult result = counted;
    for (int64_t c = 0; c < classes_; ++c) {
      result.weight += present[c];
      result.loss += losses[c];
    }
    if (result.weight > 0) result.loss /= result.weight;
    return result;
  }

  // Through the softmax: the derivative by logit c is p[c] * (slope[c] - sum over d of slope[d] *
  // p[d]), times `factor`.
  void WriteGradient(double factor, const TensorView& gradient) const {
    ParallelRanges(context_, rows_, RowsPerTask(classes_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* to = gradient.f32() + row * classes_;
        if (!args_.adds) std::fill_n(to, classes_, 0.0f);
        if (!Counts(row)) continue;
        const float* p = probabilities_.data() + row * classes_;
        const float* slope = slopes_.data() + row * classes_;
        double mean = 0;
        for (int64_t c = 0; c < classes_; ++c) mean += double{slope[c]} * p[c];
        for (int64_t c = 0; c < classes_; ++c) {
          to[c] += static_cast<float>(p[c] * (slope[c] - mean) * factor);
        }
      }
    });
  }

 private:
  bool IsClass(int64_t label) const { return label >= 0 && label < classes_; }
  bool Counts(int64_t row) const {
    return args_.labels[row] != args_.ignored && IsClass(args_.labels[row]);
  }

  // Also counts rows. A row with a logit that is not finite, besides -inf, has NaN as all of its
  // probabilities.
  LossResult ComputeProbabilities() {
    enum { kRows, kCorrect, kBad, kSums };
    const std::vector<double> sums = SumRows(context_, rows_, kSums, [&](int64_t row, double* to) {
      const float* logits = args_.logits.f32() + row * classes_;
      const float* largest = std::max_element(logits, logits + classes_);
      double sum = 0;
      for (int64_t c = 0; c < classes_; ++c) sum += std::exp(double{logits[c]} - *largest);
      const double log_sum = *largest + std::log(sum);
      for (int64_t c = 0; c < classes_; ++c) {
        probabilities_[row * classes_ + c] = static_cast<float>(std::exp(logits[c] - log_sum));
      }
      if (Counts(row)) {
        to[kRows] += 1;
        if (largest - logits == args_.labels[row]) to[kCorrect] += 1;
      } else if (args_.labels[row] != args_.ignored) {
        to[kBad] += 1;
      }
    });
    return {.rows = static_cast<int64_t>(sums[kRows]),
            .correct = static_cast<int64_t>(sums[kCorrect]),
            .bad_labels = static_cast<int64_t>(sums[kBad])};
  }

  struct Error {
    float place;  // the error, or 2 for a NaN, so that all can be ordered
    int32_t row;
  };

  // Writes the derivatives of the class's loss by the probabilities (Algorithm 1). With f rows of
  // the class and b others up to and including a row, and g rows of the class in all, Jaccard's
  // loss grows at that row by 1 / (g + b) if the row is of the class, else by
  // (g - f) / ((g + b - 1) * (g + b)). False if no row has the class.
  bool DifferentiateClass(int64_t c, double& loss) {
    std::vector<Error> errors;
    int64_t own = 0;
    for (int64_t row = 0; row < rows_; ++row) own += Counts(row) && args_.labels[row] == c ? 1 : 0;
    if (own == 0) return false;
    errors.reserve(rows_);
    for (int64_t row = 0; row < rows_; ++row) {
      if (!Counts(row)) continue;
      const float error = ErrorOf(row, c);
      errors.push_back({std::isnan(error) ? 2.0f : error, static_cast<int32_t>(row)});
    }
    std::sort(errors.begin(), errors.end(), [](const Error& a, const Error& b) {
      return a.place != b.place ? a.place > b.place : a.row < b.row;
    });
    double found = 0, others = 0;
    const auto of_class = static_cast<double>(own);
    for (const Error& error : errors) {
      const bool is_own = args_.labels[error.row] == c;
      (is_own ? found : others) += 1;
      const double all = of_class + others;
      const double growth = is_own ? 1.0 / all : (of_class - found) / ((all - 1.0) * all);
      loss += growth * ErrorOf(error.row, c);
      slopes_[error.row * classes_ + c] = static_cast<float>(is_own ? -growth : growth);
    }
    return true;
  }

  float ErrorOf(int64_t row, int64_t c) const {
    const float p = probabilities_[row * classes_ + c];
    return args_.labels[row] == c ? 1.0f - p : p;
  }

  const LovaszArgs& args_;
  const ExecutionContext& context_;
  const int64_t rows_, classes_;
  std::vector<float> probabilities_, slopes_;  // [rows, classes]
};

}  // namespace

absl::Status CpuLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                              LossResult* result, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckLovaszSoftmax(args, gradient, result, *context.backend));
  LovaszSoftmax lovasz(args, context);
  const LossResult own = lovasz.Run();
  const double scale = args.gradient_scale == nullptr ? 1.0 : *args.gradient_scale;
  lovasz.WriteGradient(scale / std::max(own.weight, 1.0), gradient);
  if (args.adds) {
    result->loss += own.loss;
  } else {
    *result = own;
  }
  return absl::OkStatus();
}

}  // namespace voxconv
