// Parallel loops on the CPU backend's threads.
#ifndef VOXCONV_BACKENDS_CPU_PARALLEL_H_
#define VOXCONV_BACKENDS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "backends/cpu/cpu_backend.h"
#include "tbb/parallel_for.h"

namespace voxconv {

// body(begin, end) for the ranges [0, grain), [grain, 2 grain), ... of [0, n). The ranges depend
// on `grain` alone, never on the number of threads, so that whatever a body computes per range is
// the same for any thread count. Ranges run in any order, concurrently; bodies must not throw.
template <typename Body>
void ParallelRanges(const ExecutionContext& context, int64_t n, int64_t grain, const Body& body) {
  CpuBackend& backend = AsCpu(context);
  const int64_t ranges = (n + grain - 1) / grain;
  const auto run = [&](int64_t r) { body(r * grain, std::min(n, (r + 1) * grain)); };
  if (backend.threads() == 1 || ranges <= 1) {
    for (int64_t r = 0; r < ranges; ++r) run(r);
    return;
  }
  backend.arena().execute([&] { tbb::parallel_for(int64_t{0}, ranges, run); });
}

// Rows of `channels` floats that make one task: small enough for the L2 cache, large enough to
// amortise its scheduling.
inline int64_t RowsPerTask(int64_t channels) {
  constexpr int64_t kFloatsPerTask = 1 << 15;
  return std::max<int64_t>(1, kFloatsPerTask / std::max<int64_t>(1, channels));
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PARALLEL_H_
