// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_POOLING_H_
#define VOXCONV_REFERENCE_CPU_POOLING_H_

#include <cstdint>
#include <vector>

#include "voxconv/reference_cpu/fp64_array.h"
#include "voxconv/reference_cpu/kernel_map.h"

namespace voxconv::reference {

// All arrays are row-major in host memory, with `channels` columns. The functions
// throw std::invalid_argument if a size or a row does not fit. Features must not
// be NaN.

struct PoolShape {
  int64_t num_inputs = 0;   // rows on the fine side
  int64_t num_outputs = 0;  // rows on the coarse side
  int64_t channels = 0;
};

// What the sum of a window is divided by. kKernelVolume is H-CNN's F³. kPresent
// is the number of inputs in the window.
enum class Divisor { kOne, kKernelVolume, kPresent };

struct MaxPooled {
  std::vector<double> y;          // [num_outputs, channels]
  std::vector<int32_t> switches;  // [num_outputs, channels], the input row chosen
};

// Among equal maxima the lowest kernel offset wins. An output without inputs
// has the value 0 and the switch -1.
MaxPooled MaxPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x);

// y[q] = Σ over pairs (p, q, k) of x[p], divided by the divisor. 0 for an output
// without inputs. kOne is sum pooling; the others are average pooling.
std::vector<double> SumPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                            Divisor divisor);

// The adjoints of pooling. x has num_outputs rows, the result num_inputs rows.
// Contributions of windows that overlap are added. A row in no window is 0.
std::vector<double> MaxUnpool(const std::vector<int32_t>& switches, const PoolShape& shape,
                              const Fp64Array& x);

// y[p] = Σ over pairs (p, q, k) of x[q], divided as in SumPool.
std::vector<double> SumUnpool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                              Divisor divisor);

enum class GlobalPooling { kMax, kAverage, kSum };

// Pools all voxels of each batch sample: x [N, channels], batch_of_row [N] in
// [0, num_batches), result [num_batches, channels]. A sample without voxels is 0.
std::vector<double> GlobalPool(GlobalPooling pooling, const std::vector<int32_t>& batch_of_row,
                               int64_t num_batches, int64_t channels, const Fp64Array& x);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_POOLING_H_
