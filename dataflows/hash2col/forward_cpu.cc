#include "dataflows/hash2col/forward_cpu.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/parallel.h"
#include "backends/cpu/sgemm.h"

namespace voxconv {
namespace {

// Output rows whose columns a task assembles.
constexpr int64_t kRowsPerTask = 128;

// H-CNN Algorithm 1 for outputs [begin, end): row q of `columns` stacks the features of q's
// receptive field, zeros where it is empty. `neighbours` is the map's table [N_out, K].
void AssembleColumns(const int32_t* neighbours, int num_offsets, const float* features,
                     int64_t channels, int64_t begin, int64_t end, float* columns) {
  const int64_t bytes = channels * static_cast<int64_t>(sizeof(float));
  for (int64_t i = begin * num_offsets; i < end * num_offsets; ++i, columns += channels) {
    if (neighbours[i] >= 0) {
      std::memcpy(columns, features + neighbours[i] * channels, bytes);
    } else {
      std::memset(columns, 0, bytes);
    }
  }
}

}  // namespace

void Hash2colCpu(const Hash2colPlan& plan, const KernelMap& map, const ForwardArgs& args,
                 float* columns, const ExecutionContext& context) {
  const int32_t* table = map.As<NeighbourTable>().table.data();
  const int num_offsets = map.num_offsets();
  const int64_t c_out = plan.shape().c_out;
  const int64_t column_size = plan.column_size();
  for (int64_t first = 0; first < map.num_outputs(); first += plan.block_rows()) {
    const int64_t rows = std::min(plan.block_rows(), map.num_outputs() - first);
    {
      StageScope stage(context, Stage::kGather);
      ParallelRanges(context, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
        AssembleColumns(table, num_offsets, args.input.f32(), args.input.channels, first + begin,
                        first + end, columns + begin * column_size);
      });
    }
    StageScope stage(context, Stage::kGemm);  // Equation 3
    Sgemm(context, rows, c_out, column_size, columns, args.weights.f32(), 0,
          args.output.f32() + first * c_out);
  }
}

}  // namespace voxconv
