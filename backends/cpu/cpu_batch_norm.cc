// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "voxconv/backends/cpu/column_sums.h"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

// Row `row` of dy, as it reaches the batch norm: 0 where the ReLU behind it gave 0.
class MaskedRow {
 public:
  MaskedRow(const BatchNormGradArgs& args, int64_t row)
      : dy_(args.dy.f32() + row * args.dy.channels),
        y_(args.y.data == nullptr ? nullptr : args.y.f32() + row * args.y.channels) {}

  float operator[](int64_t c) const { return y_ == nullptr || y_[c] > 0.0f ? dy_[c] : 0.0f; }

 private:
  const float* dy_;
  const float* y_;
};

}  // namespace

absl::Status CpuChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckChannelMoments(x, mean, deviation, *context.backend));
  const int64_t channels = x.channels;
  const std::vector<double> sums = SumRows(context, x.rows, channels, [&](int64_t row, double* to) {
    const float* from = x.f32() + row * channels;
    for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
  });
  const auto rows = static_cast<double>(std::max<int64_t>(x.rows, 1));
  std::vector<double> means(channels);
  for (int64_t c = 0; c < channels; ++c) means[c] = sums[c] / rows;
  // A second pass, because the difference of two large sums would lose a small variance.
  const std::vector<double> squares =
      SumRows(context, x.rows, channels, [&](int64_t row, double* to) {
        const float* from = x.f32() + row * channels;
        for (int64_t c = 0; c < channels; ++c) to[c] += (from[c] - means[c]) * (from[c] - means[c]);
      });
  std::copy(means.begin(), means.end(), mean);
  std::copy(squares.begin(), squares.end(), deviation);
  return absl::OkStatus();
}

absl::Status CpuSumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                              int64_t channels, double* sums) {
  VOXCONV_RETURN_IF_ERROR(CheckMomentSums(mean, deviation, channels, sums));
  const auto count = static_cast<double>(rows);
  sums[0] = count;
  for (int64_t c = 0; c < channels; ++c) {
    const double m = mean[c];
    sums[1 + c] = count * m;
    sums[1 + channels + c] = deviation[c] + count * m * m;
  }
  return absl::OkStatus();
}

absl::Status CpuMomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation) {
  VOXCONV_RETURN_IF_ERROR(CheckMomentSums(mean, deviation, channels, sums));
  const double rows = std::max(sums[0], 1.0);
  for (int64_t c = 0; c < channels; ++c) {
    const double m = sums[1 + c] / rows;
    const double squares = sums[1 + channels + c] - m * sums[1 + c];
    mean[c] = static_cast<float>(m);
    deviation[c] = squares < 0 ? 0.0f : static_cast<float>(squares);  // a NaN stays a NaN
  }
  return absl::OkStatus();
}

absl::Status CpuBatchNormScale(const BatchNormBatch& batch) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormScale(batch));
  const double given =
      batch.shared_rows == nullptr ? static_cast<double>(batch.rows) : *batch.shared_rows;
  const double rows = std::max(given, 1.0);
  const double unbiased = rows > 1 ? rows - 1 : rows;
  const auto update = [&](float& running, double value) {
    running = static_cast<float>((1.0 - batch.momentum) * running + batch.momentum * value);
  };
  for (int64_t c = 0; c < batch.channels; ++c) {
    const double inverse_std = 1.0 / std::sqrt(batch.deviation[c] / rows + batch.epsilon);
    const double scale = batch.gamma[c] * inverse_std;
    batch.inverse_std[c] = static_cast<float>(inverse_std);
    batch.scale[c] = static_cast<float>(scale);
    batch.shift[c] = static_cast<float>(batch.beta[c] - batch.mean[c] * scale);
    if (given == 0) continue;
    if (batch.running_mean != nullptr) update(batch.running_mean[c], batch.mean[c]);
    if (batch.running_variance != nullptr) {
      update(batch.running_variance[c], batch.deviation[c] / unbiased);
    }
  }
  return absl::OkStatus();
}

absl::Status CpuBatchNormGradSums(const BatchNormGradArgs& args, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormGradSums(args, *context.backend));
  const int64_t channels = args.x.channels;
  const std::vector<double> sums =
      SumRows(context, args.x.rows, 2 * channels, [&](int64_t row, double* to) {
        const float* x = args.x.f32() + row * channels;
        const MaskedRow dy(args, row);
        for (int64_t c = 0; c < channels; ++c) {
          to[c] += dy[c];
          to[channels + c] += dy[c] * ((x[c] - args.mean[c]) * args.inverse_std[c]);
        }
      });
  std::copy_n(sums.begin(), channels, args.sum_dy);
  std::copy_n(sums.begin() + channels, channels, args.sum_dy_x);
  return absl::OkStatus();
}

absl::Status CpuBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                   const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckBatchNormInputGrad(args, dx, *context.backend));
  const int64_t channels = args.x.channels;
  const double given =
      args.shared_rows == nullptr ? static_cast<double>(args.rows) : *args.shared_rows;
  const auto rows = static_cast<float>(std::max(given, 1.0));
  ParallelRanges(context, args.x.rows, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x.f32() + row * channels;
      float* to = dx.f32() + row * channels;
      const MaskedRow dy(args, row);
      for (int64_t c = 0; c < channels; ++c) {
        const float normalised = (x[c] - args.mean[c]) * args.inverse_std[c];
        to[c] = args.gamma[c] * args.inverse_std[c] *
                (dy[c] - args.sum_dy[c] / rows - normalised * (args.sum_dy_x[c] / rows));
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace voxconv
