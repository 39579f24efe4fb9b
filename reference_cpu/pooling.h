#ifndef VOXCONV_REFERENCE_CPU_POOLING_H_
#define VOXCONV_REFERENCE_CPU_POOLING_H_

#include <cstdint>
#include <vector>

#include "reference_cpu/fp64_array.h"
#include "reference_cpu/kernel_map.h"

namespace voxconv::reference {

// Row-major host arrays of `channels` columns; throws std::invalid_argument
// where a size or a row does not fit. Features must not be NaN.

struct PoolShape {
  int64_t num_inputs = 0;   // rows on the fine side
  int64_t num_outputs = 0;  // rows on the coarse side
  int64_t channels = 0;
};

// What a window's sum is divided by. kKernelVolume is H-CNN's F³, kPresent the
// number of inputs that the window really holds.
enum class Divisor { kOne, kKernelVolume, kPresent };

struct MaxPooled {
  std::vector<double> y;          // [num_outputs, channels]
  std::vector<int32_t> switches;  // [num_outputs, channels], the input row chosen
};

// Among equal maxima the lowest kernel offset wins. An output without inputs
// has the value 0 and the switch -1.
MaxPooled MaxPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x);

// y[q] = Σ over pairs (p, q, k) of x[p], divided; 0 for an output without inputs.
// Average pooling with either divisor, sum pooling with kOne.
std::vector<double> SumPool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                            Divisor divisor);

// The adjoints of pooling: x has num_outputs rows, the result num_inputs rows.
// Where windows overlap, their contributions add up; what no window reaches is 0.
std::vector<double> MaxUnpool(const std::vector<int32_t>& switches, const PoolShape& shape,
                              const Fp64Array& x);

// y[p] = Σ over pairs (p, q, k) of x[q] divided as in SumPool.
std::vector<double> SumUnpool(const KernelMap& map, const PoolShape& shape, const Fp64Array& x,
                              Divisor divisor);

enum class GlobalPooling { kMax, kAverage, kSum };

// Pools all voxels of each batch sample: x [N, channels], batch_of_row [N] in
// [0, num_batches) -> [num_batches, channels]. A sample without voxels yields 0.
std::vector<double> GlobalPool(GlobalPooling pooling, const std::vector<int32_t>& batch_of_row,
                               int64_t num_batches, int64_t channels, const Fp64Array& x);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_POOLING_H_
