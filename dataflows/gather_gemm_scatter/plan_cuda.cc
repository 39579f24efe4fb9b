#include "dataflows/gather_gemm_scatter/plan_cuda.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_vector.h"
#include "dataflows/gather_gemm_scatter/forward_cuda.h"

namespace voxconv {
namespace {

// Rounds of threads that a move should fill the device with before a thread takes more than one
// vector. (Minuet 5.2.1: a large tile reads the map less often, a small one is more parallel.)
constexpr int64_t kRounds = 2;
constexpr int64_t kThreadsPerMultiprocessor = 2048;

// The tile that `rule` leaves to choose: as many of the widest vectors as keep the device full.
int64_t ChooseTile(int64_t rows, int64_t channels, int64_t element, int vector_limit,
                   int num_multiprocessors) {
  const int64_t row_bytes = channels * element;
  const int64_t vector = VectorBytes(vector_limit, {static_cast<uint64_t>(row_bytes)});
  const int64_t full = kRounds * kThreadsPerMultiprocessor * num_multiprocessors;
  const int64_t vectors =
      std::clamp<int64_t>(rows * (row_bytes / vector) / full, 1, kVectorsPerWalk);
  const int64_t floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(vectors)));
  return std::min(channels, floor * vector / element);
}

MoveRule WithTiles(MoveRule rule, const KernelMap& map, const ConvShape& shape,
                   const CudaMoveRule& cuda, const ExecutionContext& context) {
  const int multiprocessors = AsCuda(context).num_multiprocessors();
  const int64_t element = SizeOf(shape.dtype);
  const int limit = std::max(cuda.vector_bytes, static_cast<int>(element));
  if (rule.gather_tile == 0) {
    rule.gather_tile = ChooseTile(map.num_inputs(), shape.c_in, element, limit, multiprocessors);
  }
  if (rule.scatter_tile == 0) {
    rule.scatter_tile = ChooseTile(map.num_outputs(), shape.c_out, element, limit, multiprocessors);
  }
  return rule;
}

// The offsets of `pass` in ranges of at most `per_launch` of them, no wider than a launch takes.
std::vector<OffsetRange> RangesOf(const Pass& pass, int per_launch) {
  std::vector<OffsetRange> ranges;
  for (size_t begin = 0; begin < pass.offsets.size();) {
    const int first = pass.offsets[begin];
    size_t end = begin + 1;
    while (end < pass.offsets.size() && end - begin < static_cast<size_t>(per_launch) &&
           pass.offsets[end] < first + kMaxOffsetsPerLaunch) {
      ++end;
    }
    ranges.push_back({first, pass.offsets[end - 1] - first + 1});
    begin = end;
  }
  return ranges;
}

bool IsProgression(const std::vector<int>& offsets) {
  if (offsets.size() <= 2) return offsets.size() < 2 || offsets[1] > offsets[0];
  const int step = offsets[1] - offsets[0];
  if (step <= 0) return false;
  for (size_t i = 2; i < offsets.size(); ++i) {
    if (offsets[i] - offsets[i - 1] != step) return false;
  }
  return true;
}

}  // namespace

GatherGemmScatterCudaPlan::GatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map,
                                                     const ConvShape& shape, const MoveRule& rule,
                                                     const CudaMoveRule& cuda,
                                                     const ExecutionContext& context)
    : GatherGemmScatterPlan(std::move(schedule), map, shape,
                            WithTiles(rule, map, shape, cuda, context)),
      cuda_(cuda),
      place_of_copy_(map.num_offsets(), -1) {
  const int most = cuda.offsets_per_launch == 0 ? kMaxOffsetsPerLaunch : cuda.offsets_per_launch;
  // An output row occurs once an offset: one by one they are added up without atomics.
  const int most_scattered = rule.order == MoveOrder::kWeight ? 1 : most;
  for (const Pass& pass : this->schedule().passes) {
    gathers_.push_back(RangesOf(pass, most));
    scatters_.push_back(RangesOf(pass, most_scattered));
    num_scatters_ += static_cast<int64_t>(scatters_.back().size());
    for (const Matmul& matmul : pass.matmuls) {
      // Slices of one matmul share their copies.
      if (IsProgression(matmul.offsets) || place_of_copy_[matmul.offsets.front()] >= 0) continue;
      for (const int k : matmul.offsets) {
        place_of_copy_[k] = static_cast<int>(copied_weights_.size());
        copied_weights_.push_back(k);
      }
    }
  }
  const int64_t element = SizeOf(shape.dtype);
  if (!copied_weights_.empty()) {
    weights_slot_ = booking_.Book(static_cast<int64_t>(copied_weights_.size()) * shape.c_in *
                                  shape.c_out * element);
  }
  if (element < static_cast<int64_t>(sizeof(float)) && num_scatters_ > 1) {
    accumulator_slot_ = booking_.Book<float>(map.num_outputs() * shape.c_out);
  }
}

BatchedWeights GatherGemmScatterCudaPlan::WeightsOf(const Matmul& matmul) const {
  const int first = matmul.offsets.front();
  if (place_of_copy_[first] >= 0) return {true, place_of_copy_[first], 1};
  return {false, first, matmul.offsets.size() > 1 ? matmul.offsets[1] - first : 1};
}

MoveShape GatherGemmScatterCudaPlan::ShapeOf(int64_t rows, int64_t channels, int64_t tile,
                                             uint64_t alignment) const {
  const int64_t element = SizeOf(shape().dtype);
  const int64_t tile_bytes = MoveRule::TileOf(tile, channels) * element;
  const int limit = std::max(cuda_.vector_bytes, static_cast<int>(element));
  MoveShape move;
  move.rows = rows;
  move.vector_bytes = VectorBytes(limit, {static_cast<uint64_t>(channels * element),
                                          static_cast<uint64_t>(tile_bytes), alignment});
  move.vectors = channels * element / move.vector_bytes;
  const int64_t per_thread = tile_bytes / move.vector_bytes;
  move.threads = (move.vectors + per_thread - 1) / per_thread;
  return move;
}

std::unique_ptr<DataflowPlan> MakeGatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map,
                                                            const ConvShape& shape,
                                                            const MoveRule& rule,
                                                            const CudaMoveRule& cuda,
                                                            const ExecutionContext& context) {
  return std::make_unique<GatherGemmScatterCudaPlan>(std::move(schedule), map, shape, rule, cuda,
                                                     context);
}

}  // namespace voxconv
