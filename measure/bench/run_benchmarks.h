// Running Google Benchmark's registered benchmarks.
#ifndef VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_

#include "absl/status/status.h"

namespace voxconv::bench {

// Runs what is registered and matches the filter, after benchmark::Initialize. The results go to
// standard output and to the library's own output file. Errors: kNotFound where no benchmark
// matches, kInternal where benchmarks ended with an error, of which the first is said.
absl::Status RunBenchmarks();

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_RUN_BENCHMARKS_H_
