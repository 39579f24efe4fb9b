// SPDX-License-Identifier: Apache-2.0
// Running Google Benchmark's registered benchmarks.
#ifndef VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_

#include "absl/status/status.h"

namespace voxconv::bench {

// Runs the registered benchmarks that match the filter. benchmark::Initialize must have been
// called. Results go to standard output and to the library's output file. kNotFound if no benchmark
// matches. kInternal if benchmarks ended with an error; the message gives the first one.
absl::Status RunBenchmarks();

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_
