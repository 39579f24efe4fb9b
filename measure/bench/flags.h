// Google Benchmark's own flags, and what it reports. The library ends the program where a flag is
// bad, in part with exit code 0, and says nothing of a file that it cannot write.
#ifndef VOXCONV_MEASURE_BENCH_FLAGS_H_
#define VOXCONV_MEASURE_BENCH_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace voxconv::bench {

// "--benchmark_..." flags, checked. The file is taken out of them: RunBenchmarks writes it.
struct Flags {
  std::vector<std::string> library;  // for Google Benchmark
  std::string out;                   // --benchmark_out; empty: none
  std::string out_format = "json";   // --benchmark_out_format: json, csv or console
};
absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& flags);

// Runs what is registered and matches the filter. Errors: kNotFound where nothing does, kInternal
// where benchmarks ended with an error, of which the first is said, kDataLoss where the file cannot
// be written.
absl::Status RunBenchmarks(const Flags& flags);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_FLAGS_H_
