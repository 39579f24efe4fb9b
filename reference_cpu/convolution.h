// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_CONVOLUTION_H_
#define VOXCONV_REFERENCE_CPU_CONVOLUTION_H_

#include <cstdint>
#include <vector>

#include "voxconv/reference_cpu/fp64_array.h"
#include "voxconv/reference_cpu/kernel_map.h"

namespace voxconv::reference {

struct ConvShape {
  int64_t num_inputs = 0;   // rows of x
  int64_t num_outputs = 0;  // rows of y
  int64_t c_in = 0;
  int64_t c_out = 0;
};

// Row-major host arrays: x [num_inputs, c_in], w [K, c_in, c_out], bias [c_out]
// or empty for none, y [num_outputs, c_out]. All take O(pairs·c_in·c_out) time
// and throw std::invalid_argument where a size or a row of the map does not fit.

// y[q] = bias + Σ over pairs (p, q, k) of x[p]·w[k].
std::vector<double> Convolution(const KernelMap& map, const ConvShape& shape, const Fp64Array& x,
                                const Fp64Array& w, const Fp64Array& bias = {});

// dL/dx [num_inputs, c_in] from dy = dL/dy [num_outputs, c_out].
std::vector<double> BackwardInput(const KernelMap& map, const ConvShape& shape, const Fp64Array& dy,
                                  const Fp64Array& w);

// dL/dw [K, c_in, c_out] from dy = dL/dy [num_outputs, c_out].
std::vector<double> BackwardWeight(const KernelMap& map, const ConvShape& shape, const Fp64Array& x,
                                   const Fp64Array& dy);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_CONVOLUTION_H_
