// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/timer.h"

namespace voxconv::bench {
namespace {

constexpr int64_t kMultiplyAdds = 20'000'000;  // of whole vectors, on each thread: some 10 ms
constexpr int64_t kTileProducts = 1'000'000;   // the same of AMX

// With the fastest instructions that layers of this precision use on this processor.
double RunInRegisters(Precision precision) {
  if (precision != Precision::kBF16) return RunMultiplyAdds(kMultiplyAdds);
  if (HasAmxProducts()) return RunAmxProducts(kTileProducts);
  return RunBf16DotProducts(kMultiplyAdds);
}

void RunPeak(Precision precision, int threads, benchmark::State& state) {
  if (precision == Precision::kBF16 && !HasBf16Products()) {
    state.SkipWithError("bf16 on the CPU needs AVX512-BF16, which this processor lacks");
    return;
  }
  const auto backend = CpuBackend::Create({.threads = threads});
  if (!backend.ok()) {
    state.SkipWithError(std::string(backend.status().message()).c_str());
    return;
  }
  const ExecutionContext context = {backend->get(), &(*backend)->main_stream()};
  std::vector<double> rates;
  for (auto _ : state) {
    const measure::Timer timer;
    std::atomic<double> flops = 0;
    ParallelRanges(context, threads, 1,
                   [&](int64_t, int64_t) { flops.fetch_add(RunInRegisters(precision)); });
    const double seconds = timer.Seconds();
    rates.push_back(flops / seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["GFLOP/s"] = 1e-9 * Median(rates);
}

}  // namespace

void AddPeakBenchmark(Precision precision, int threads) {
  benchmark::RegisterBenchmark(
      absl::StrCat("peak/", ToString(precision), "/threads=", threads).c_str(),
      [precision, threads](benchmark::State& state) { RunPeak(precision, threads, state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
