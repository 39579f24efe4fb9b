// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/timer.h"

namespace voxconv::bench {
namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 20;
constexpr int64_t kBytesPerTask = int64_t{1} << 20;

void RunCopy(int threads, benchmark::State& state) {
  const auto backend = CpuBackend::Create({.threads = threads});
  if (!backend.ok()) {
    state.SkipWithError(std::string(backend.status().message()).c_str());
    return;
  }
  const ExecutionContext context = {backend->get(), &(*backend)->main_stream()};
  const std::vector<char> from(kCopyBytes, 1);
  std::vector<char> to(kCopyBytes, 2);  // touched, so that no page is first written while timed
  std::vector<double> seconds;
  for (auto _ : state) {
    const measure::Timer timer;
    ParallelRanges(context, kCopyBytes, kBytesPerTask, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, end - begin);
    });
    benchmark::ClobberMemory();
    seconds.push_back(timer.Seconds());
    state.SetIterationTime(seconds.back());
  }
  state.counters["GB/s"] = 1e-9 * 2 * static_cast<double>(kCopyBytes) / Median(seconds);
}

}  // namespace

void AddCopyBenchmark(int threads) {
  benchmark::RegisterBenchmark(absl::StrCat("copy/threads=", threads).c_str(),
                               [threads](benchmark::State& state) { RunCopy(threads, state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
