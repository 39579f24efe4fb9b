// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_LAYERS_H_
#define VOXCONV_REFERENCE_CPU_LAYERS_H_

#include <cstdint>
#include <vector>

#include "voxconv/reference_cpu/fp64_array.h"

namespace voxconv::reference {

// All arrays are row-major in host memory. Sizes that do not fit throw
// std::invalid_argument.

// Statistics and affine parameters of batch normalisation, each [channels].
struct BatchNormParams {
  Fp64Array mean;
  Fp64Array variance;
  Fp64Array gamma;
  Fp64Array beta;
  double epsilon = 1e-5;
};

// Inference: y = (x - mean) / sqrt(variance + epsilon) · gamma + beta, by channel.
std::vector<double> BatchNorm(const Fp64Array& x, const BatchNormParams& params);

// max(x, 0). A NaN stays a NaN.
std::vector<double> Relu(const Fp64Array& x);

// y = x·w + bias for x [rows, c_in], w [c_in, c_out], bias [c_out] or empty.
std::vector<double> Linear(const Fp64Array& x, int64_t rows, int64_t c_in, int64_t c_out,
                           const Fp64Array& w, const Fp64Array& bias = {});

// a + b, of arrays of one size.
std::vector<double> Add(const Fp64Array& a, const Fp64Array& b);

// Row i of the result is row i of `a` [rows, channels_a], then row i of `b`
// [rows, channels_b].
std::vector<double> Concat(const Fp64Array& a, const Fp64Array& b, int64_t rows);

// Norm-wise relative error ‖y - ref‖ / ‖ref‖ in the 2-norm. 0 if both are empty
// or all zero. Infinity, which no bound admits, if one of them has a NaN or an
// infinity, if the sizes differ, or if only `ref` is all zero.
double RelativeError(const Fp64Array& y, const Fp64Array& ref);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_LAYERS_H_
