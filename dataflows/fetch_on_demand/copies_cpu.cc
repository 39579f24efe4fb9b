// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 512;

}  // namespace

void AddCopiedProductsCpu(const KernelMap& map, const CopiedProducts& args,
                          const ExecutionContext& context) {
  const auto* input = static_cast<const float*>(args.input);
  const auto* weights = static_cast<const float*>(args.weights);
  auto* rows = static_cast<float*>(args.rows);
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int64_t pairs = map.num_pairs(k);
    if (pairs == 0) continue;
    const int32_t* in = map.pairs().in.data() + map.offset_ptr()[k];
    const int32_t* out = map.pairs().out.data() + map.offset_ptr()[k];
    ParallelRanges(context, pairs, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(rows + i * args.c_in, input + in[i] * args.c_in, args.c_in * sizeof(float));
      }
    });
    Sgemm(context, pairs, args.c_out, args.c_in, rows, weights + k * args.c_in * args.c_out,
          ProductMode::kOverwrite, args.products);
    ParallelRanges(context, pairs, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* to = args.sum + out[i] * args.c_out;
        const float* from = args.products + i * args.c_out;
        for (int64_t c = 0; c < args.c_out; ++c) to[c] += from[c];
      }
    });
  }
}

}  // namespace voxconv
