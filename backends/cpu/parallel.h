// SPDX-License-Identifier: Apache-2.0
// Parallel loops on the CPU backend's threads.
#ifndef VOXCONV_BACKENDS_CPU_PARALLEL_H_
#define VOXCONV_BACKENDS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/check.h"

namespace voxconv {

// Calls body(begin, end) for the ranges [0, grain), [grain, 2 * grain), ... of [0, n), on the
// context's threads, and returns when all calls have returned. The ranges depend on `grain` alone,
// so that what a body computes for a range does not depend on the number of threads. Calls run in
// any order, and several at once. `body` must not throw. `grain` must be 1 or more (checked),
// unless n is 0: then nothing is called.
template <typename Body>
void ParallelRanges(const ExecutionContext& context, int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  VOXCONV_CHECK(grain >= 1);
  CpuBackend& backend = AsCpu(context);
  const int64_t ranges = (n + grain - 1) / grain;
  const auto run = [&](int64_t r) { body(r * grain, std::min(n, (r + 1) * grain)); };
  if (backend.threads() == 1 || ranges <= 1) {
    for (int64_t r = 0; r < ranges; ++r) run(r);
    return;
  }
  backend.arena().execute([&] { tbb::parallel_for(int64_t{0}, ranges, run); });
}

// The same, but body(begin, end, thread): calls that run at once have different threads, of 0 ..
// the backend's number of threads - 1.
template <typename Body>
void ParallelRangesByThread(const ExecutionContext& context, int64_t n, int64_t grain,
                            const Body& body) {
  const bool alone = AsCpu(context).threads() == 1 || n <= grain;
  ParallelRanges(context, n, grain, [&](int64_t begin, int64_t end) {
    body(begin, end, alone ? 0 : tbb::this_task_arena::current_thread_index());
  });
}

// How many rows of `channels` floats make one task. Such a task fits the L2 cache, and is large
// enough to hide the cost of scheduling it.
inline int64_t RowsPerTask(int64_t channels) {
  constexpr int64_t kFloatsPerTask = 1 << 15;
  return std::max<int64_t>(1, kFloatsPerTask / std::max<int64_t>(1, channels));
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PARALLEL_H_
