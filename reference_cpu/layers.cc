// SPDX-License-Identifier: Apache-2.0
#include "voxconv/reference_cpu/layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "voxconv/reference_cpu/require.h"

namespace voxconv::reference {

std::vector<double> BatchNorm(const Fp64Array& x, const BatchNormParams& params) {
  const size_t channels = params.mean.size();
  const int64_t columns = static_cast<int64_t>(channels);
  RequireSize("variance", params.variance.size(), 1, columns);
  RequireSize("gamma", params.gamma.size(), 1, columns);
  RequireSize("beta", params.beta.size(), 1, columns);
  Require(channels == 0 ? x.empty() : x.size() % channels == 0, "x has ", x.size(),
          " elements; it must have rows of ", channels);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    y[i] =
        (x[i] - params.mean[c]) / std::sqrt(params.variance[c] + params.epsilon) * params.gamma[c] +
        params.beta[c];
  }
  return y;
}

std::vector<double> Relu(const Fp64Array& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] < 0.0 ? 0.0 : x[i];
  return y;
}

std::vector<double> Linear(const Fp64Array& x, int64_t rows, int64_t c_in, int64_t c_out,
                           const Fp64Array& w, const Fp64Array& bias) {
  RequireSize("x", x.size(), rows, c_in);
  RequireSize("w", w.size(), c_in, c_out);
  if (!bias.empty()) RequireSize("bias", bias.size(), 1, c_out);
  std::vector<double> y(static_cast<size_t>(rows * c_out), 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t co = 0; co < c_out; ++co) {
      double sum = bias.empty() ? 0.0 : bias[co];
      for (int64_t ci = 0; ci < c_in; ++ci) sum += x[row * c_in + ci] * w[ci * c_out + co];
      y[row * c_out + co] = sum;
    }
  }
  return y;
}

std::vector<double> Add(const Fp64Array& a, const Fp64Array& b) {
  RequireSize("b", b.size(), 1, static_cast<int64_t>(a.size()));
  std::vector<double> y(a.size());
  for (size_t i = 0; i < a.size(); ++i) y[i] = a[i] + b[i];
  return y;
}

std::vector<double> Concat(const Fp64Array& a, const Fp64Array& b, int64_t rows) {
  Require(rows >= 0, "rows is ", rows, "; it must not be negative");
  const int64_t channels_a = rows == 0 ? 0 : static_cast<int64_t>(a.size()) / rows;
  const int64_t channels_b = rows == 0 ? 0 : static_cast<int64_t>(b.size()) / rows;
  RequireSize("a", a.size(), rows, channels_a);
  RequireSize("b", b.size(), rows, channels_b);
  std::vector<double> y;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < channels_a; ++c) y.push_back(a[row * channels_a + c]);
    for (int64_t c = 0; c < channels_b; ++c) y.push_back(b[row * channels_b + c]);
  }
  return y;
}

double RelativeError(const Fp64Array& y, const Fp64Array& ref) {
  constexpr double kNeverPasses = std::numeric_limits<double>::infinity();
  if (y.size() != ref.size()) return kNeverPasses;
  double scale = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i]) || !std::isfinite(ref[i])) return kNeverPasses;
    scale = std::max({scale, std::abs(y[i]), std::abs(ref[i])});
  }
  if (scale == 0.0) return 0.0;
  // Scaled, so that squares of very large or very small values stay in range.
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double a = y[i] / scale;
    const double b = ref[i] / scale;
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return norm == 0.0 ? kNeverPasses : std::sqrt(difference / norm);
}

}  // namespace voxconv::reference
