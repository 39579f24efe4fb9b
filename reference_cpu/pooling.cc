// SPDX-License-Identifier: Apache-2.0
#include "voxconv/reference_cpu/pooling.h"

#include <cstddef>

#include "voxconv/reference_cpu/require.h"

namespace voxconv::reference {
namespace {

// The divisor of each output row; 1 where a row has no inputs to divide.
std::vector<double> Divisors(const KernelMap& map, int64_t num_outputs, Divisor divisor) {
  const double fixed = divisor == Divisor::kKernelVolume ? map.num_offsets : 1.0;
  std::vector<double> divisors(static_cast<size_t>(num_outputs), fixed);
  if (divisor != Divisor::kPresent) return divisors;
  std::vector<int64_t> present(static_cast<size_t>(num_outputs), 0);
  for (const int32_t out : map.out) ++present[out];
  for (size_t o = 0; o < present.size(); ++o) {
    if (present[o] > 0) divisors[o] = static_cast<double>(present[o]);
  }
  return divisors;
}

}  // namespace

MaxPooled MaxPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("x", x.size(), shape.num_inputs, shape.channels);
  const size_t size = static_cast<size_t>(shape.num_outputs * shape.channels);
  MaxPooled pooled = {std::vector<double>(size, 0.0), std::vector<int32_t>(size, -1)};
  for (size_t pair = 0; pair < map.in.size(); ++pair) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double value = x[map.in[pair] * shape.channels + c];
      const int64_t o = map.out[pair] * shape.channels + c;
      // Pairs come by ascending offset, so a strict comparison breaks ties.
      if (pooled.switches[o] == -1 || value > pooled.y[o]) {
        pooled.y[o] = value;
        pooled.switches[o] = map.in[pair];
      }
    }
  }
  return pooled;
}

std::vector<double> SumPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                            Divisor divisor) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("x", x.size(), shape.num_inputs, shape.channels);
  std::vector<double> y(static_cast<size_t>(shape.num_outputs * shape.channels), 0.0);
  for (size_t pair = 0; pair < map.in.size(); ++pair) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      y[map.out[pair] * shape.channels + c] += x[map.in[pair] * shape.channels + c];
    }
  }
  const std::vector<double> divisors = Divisors(map, shape.num_outputs, divisor);
  for (int64_t o = 0; o < shape.num_outputs; ++o) {
    for (int64_t c = 0; c < shape.channels; ++c) y[o * shape.channels + c] /= divisors[o];
  }
  return y;
}

std::vector<double> MaxUnpool(const std::vector<int32_t>& switches, const PoolShape& shape,
                              const Fp64Array& x) {
  RequireSize("x", x.size(), shape.num_outputs, shape.channels);
  RequireSize("switches", switches.size(), shape.num_outputs, shape.channels);
  std::vector<double> y(static_cast<size_t>(shape.num_inputs * shape.channels), 0.0);
  for (int64_t o = 0; o < shape.num_outputs; ++o) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      const int32_t row = switches[o * shape.channels + c];
      Require(row >= -1 && row < shape.num_inputs, "switches holds row ", row,
              "; it must be in [-1, ", shape.num_inputs, ")");
      if (row >= 0) y[row * shape.channels + c] += x[o * shape.channels + c];
    }
  }
  return y;
}

std::vector<double> SumUnpool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                              Divisor divisor) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("x", x.size(), shape.num_outputs, shape.channels);
  const std::vector<double> divisors = Divisors(map, shape.num_outputs, divisor);
  std::vector<double> y(static_cast<size_t>(shape.num_inputs * shape.channels), 0.0);
  for (size_t pair = 0; pair < map.in.size(); ++pair) {
    const int64_t out = map.out[pair];
    for (int64_t c = 0; c < shape.channels; ++c) {
      y[map.in[pair] * shape.channels + c] += x[out * shape.channels + c] / divisors[out];
    }
  }
  return y;
}

std::vector<double> GlobalPool(GlobalPooling pooling, const std::vector<int32_t>& batch_of_row,
                               int64_t num_batches, int64_t channels, const Fp64Array& x) {
  RequireSize("x", x.size(), static_cast<int64_t>(batch_of_row.size()), channels);
  Require(num_batches >= 0, "num_batches is ", num_batches, "; it must not be negative");
  // A sample is one output voxel that sees all its rows.
  KernelMap all_rows;
  all_rows.num_offsets = 1;
  all_rows.offset_ptr = {0, static_cast<int64_t>(batch_of_row.size())};
  for (size_t row = 0; row < batch_of_row.size(); ++row) {
    all_rows.in.push_back(static_cast<int32_t>(row));
    all_rows.out.push_back(batch_of_row[row]);
  }
  const PoolShape shape = {static_cast<int64_t>(batch_of_row.size()), num_batches, channels};
  if (pooling == GlobalPooling::kMax) return MaxPool(all_rows, shape, x).y;
  return SumPool(all_rows, shape, x,
                 pooling == GlobalPooling::kAverage ? Divisor::kPresent : Divisor::kOne);
}

}  // namespace voxconv::reference
