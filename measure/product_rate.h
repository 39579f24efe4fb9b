// SPDX-License-Identifier: Apache-2.0
// How fast this machine's dense products are. A product that is far below what the processor can do
// decides which dataflow looks fast.
#ifndef VOXCONV_MEASURE_PRODUCT_RATE_H_
#define VOXCONV_MEASURE_PRODUCT_RATE_H_

#include <string>

#include "voxconv/core/types.h"
#include "voxconv/measure/json_file.h"

namespace voxconv::measure {

// Of one thread, in GFLOP/s. The best of several short rounds, because other work may share the
// core.
struct ProductRate {
  double product = 0;  // a dense f32 product of the CPU backend (backends/cpu/sgemm.h)
  double peak = 0;     // multiply-adds in registers with the same instruction set
};

// Measures once in a process, for at most 60 ms, and then returns the same. Other threads of this
// process should be idle.
const ProductRate& MeasureProductRate();

// Below this share of the peak, a product says more about the build than about a dataflow.
inline constexpr double kLeastShareOfPeak = 0.4;

// A sentence for people with the remedy, if `rate` is below that share. Otherwise empty.
std::string WhySlow(const ProductRate& rate);

// {"library", "kernel", "gflops", "peak_gflops"} of the backend's dense product. The rates are null
// on CUDA, and if MeasureProductRate was not called. "kernel" is the instruction set on the CPU,
// and null on CUDA, where the library chooses one for each product.
Json ProductJson(BackendKind backend);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PRODUCT_RATE_H_
