// SPDX-License-Identifier: Apache-2.0
#include "voxconv/reference_cpu/convolution.h"

#include <cstddef>

#include "voxconv/reference_cpu/require.h"

namespace voxconv::reference {
namespace {

// Calls term(i, o, j) with flat indices into x, y and w for every product of
// the convolution, in the order of the map.
template <typename Term>
void ForEachTerm(const KernelMap& map, const ConvShape& shape, Term term) {
  for (int64_t k = 0; k < map.num_offsets; ++k) {
    for (int64_t pair = map.offset_ptr[k]; pair < map.offset_ptr[k + 1]; ++pair) {
      for (int64_t ci = 0; ci < shape.c_in; ++ci) {
        for (int64_t co = 0; co < shape.c_out; ++co) {
          term(map.in[pair] * shape.c_in + ci, map.out[pair] * shape.c_out + co,
               (k * shape.c_in + ci) * shape.c_out + co);
        }
      }
    }
  }
}

}  // namespace

std::vector<double> Convolution(const KernelMap& map, const ConvShape& shape, const Fp64Array& x,
                                const Fp64Array& w, const Fp64Array& bias) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("x", x.size(), shape.num_inputs, shape.c_in);
  RequireSize("w", w.size(), map.num_offsets * shape.c_in, shape.c_out);
  std::vector<double> y(static_cast<size_t>(shape.num_outputs * shape.c_out), 0.0);
  if (!bias.empty()) {
    RequireSize("bias", bias.size(), 1, shape.c_out);
    for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % bias.size()];
  }
  ForEachTerm(map, shape, [&](int64_t i, int64_t o, int64_t j) { y[o] += x[i] * w[j]; });
  return y;
}

std::vector<double> BackwardInput(const KernelMap& map, const ConvShape& shape, const Fp64Array& dy,
                                  const Fp64Array& w) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("dy", dy.size(), shape.num_outputs, shape.c_out);
  RequireSize("w", w.size(), map.num_offsets * shape.c_in, shape.c_out);
  std::vector<double> dx(static_cast<size_t>(shape.num_inputs * shape.c_in), 0.0);
  ForEachTerm(map, shape, [&](int64_t i, int64_t o, int64_t j) { dx[i] += dy[o] * w[j]; });
  return dx;
}

std::vector<double> BackwardWeight(const KernelMap& map, const ConvShape& shape, const Fp64Array& x,
                                   const Fp64Array& dy) {
  CheckKernelMap(map, shape.num_inputs, shape.num_outputs);
  RequireSize("x", x.size(), shape.num_inputs, shape.c_in);
  RequireSize("dy", dy.size(), shape.num_outputs, shape.c_out);
  std::vector<double> dw(static_cast<size_t>(map.num_offsets * shape.c_in * shape.c_out), 0.0);
  ForEachTerm(map, shape, [&](int64_t i, int64_t o, int64_t j) { dw[j] += x[i] * dy[o]; });
  return dw;
}

}  // namespace voxconv::reference
