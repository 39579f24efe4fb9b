// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/plan_cuda.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_vector.h"

namespace voxconv {
namespace {

// Rounds of threads that a gather should fill the device with before a thread takes more than one
// vector. (Minuet 5.2.1: a small tile is more parallel, a large one has less work beside the
// moves.)
constexpr int64_t kRounds = 2;
constexpr int64_t kThreadsPerMultiprocessor = 2048;

// Vectors that a thread of a gather moves where the tile is left to choose.
int64_t ChooseVectors(int64_t rows, int64_t vectors, int num_multiprocessors) {
  const int64_t full = kRounds * kThreadsPerMultiprocessor * num_multiprocessors;
  const int64_t most = std::clamp<int64_t>(rows * vectors / full, 1, kVectorsInFlight);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
}

// What CountWork is told: blocks of threads read the map once, whatever the tile. Only in the order
// of tiles does each tile read it.
MoveRule ReadingOnce(MoveRule rule) {
  if (rule.order != MoveOrder::kTile) rule.gather_tile = rule.scatter_tile = 0;
  return rule;
}

// The offsets of `pass` in ranges of at most `per_launch` of them, no wider than a launch takes.
std::vector<LaunchOffsets> RangesOf(const BufferPass& pass, int per_launch) {
  std::vector<LaunchOffsets> ranges;
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

// The widest access that rows of this many bytes allow, if they are aligned to it.
int64_t WidestAccess(int64_t row_bytes, int most) {
  int64_t bytes = most;
  while (row_bytes % bytes != 0) bytes /= 2;
  return bytes;
}

std::string KernelName(bool ragged, const ConvShape& shape, const CudaMoveRule& cuda) {
  const int64_t element = SizeOf(shape.types.input);
  return absl::StrCat(ragged ? "ragged" : "cublasLt", ", gathers ",
                      WidestAccess(shape.c_in * element, cuda.vector_bytes),
                      " bytes at a time, scatters ",
                      WidestAccess(shape.c_out * element, cuda.vector_bytes));
}

}  // namespace

GatherGemmScatterCudaPlan::GatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map,
                                                     const ConvShape& shape, const MoveRule& rule,
                                                     const CudaMoveRule& cuda, bool ragged,
                                                     const ExecutionContext& context)
    : GatherGemmScatterPlan(std::move(schedule), map, shape, ReadingOnce(rule),
                            KernelName(ragged, shape, cuda)),
      cuda_(cuda),
      ragged_(ragged),
      gather_tile_(rule.gather_tile),
      scatter_tile_(rule.scatter_tile),
      num_multiprocessors_(AsCuda(context).num_multiprocessors()),
      place_of_copy_(map.num_offsets(), -1) {
  work_.launches = 0;  // each launch counts itself
  const int most = cuda.offsets_per_launch == 0 ? kMaxOffsetsPerLaunch : cuda.offsets_per_launch;
  // An output row occurs once an offset: one by one they are added up without atomics.
  adds_atomically_ = rule.order == MoveOrder::kWeight && most > 1;
  for (const BufferPass& pass : this->schedule().passes) {
    gathers_.push_back(RangesOf(pass, most));
    scatters_.push_back(RangesOf(pass, most));
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
  const int64_t element = SizeOf(shape.types.input);
  if (!copied_weights_.empty()) {
    weights_slot_ = booking_.Book(static_cast<int64_t>(copied_weights_.size()) * shape.c_in *
                                  shape.c_out * element);
  }
  const bool sums_more_than_once = num_scatters_ > 1 || (adds_atomically_ && num_scatters_ > 0);
  if (element < static_cast<int64_t>(sizeof(float)) && sums_more_than_once) {
    accumulator_slot_ = booking_.Book<float>(map.num_outputs() * shape.c_out);
  }
}

BatchedWeights GatherGemmScatterCudaPlan::WeightsOf(const Matmul& matmul) const {
  const int first = matmul.offsets.front();
  if (place_of_copy_[first] >= 0) return {true, place_of_copy_[first], 1};
  return {false, first, matmul.offsets.size() > 1 ? matmul.offsets[1] - first : 1};
}

MoveShape GatherGemmScatterCudaPlan::GatherShape(int64_t rows, uint64_t alignment) const {
  MoveShape move = ShapeOf(rows, shape().c_in, gather_tile_, alignment);
  if (gather_tile_ == 0 && rule().order != MoveOrder::kTile) {
    const int64_t per_thread = ChooseVectors(rows, move.vectors, num_multiprocessors_);
    move.threads = (move.vectors + per_thread - 1) / per_thread;
  }
  return move;
}

MoveShape GatherGemmScatterCudaPlan::ScatterShape(int64_t rows, uint64_t alignment) const {
  return ShapeOf(rows, shape().c_out, scatter_tile_, alignment);
}

MoveShape GatherGemmScatterCudaPlan::ShapeOf(int64_t rows, int64_t channels, int64_t tile,
                                             uint64_t alignment) const {
  const int64_t element = SizeOf(shape().types.input);
  const int64_t tile_bytes = MoveRule::TileOf(tile, channels) * element;
  const int limit = std::max(cuda_.vector_bytes, static_cast<int>(element));
  MoveShape move;
  move.rows = rows;
  move.vector_bytes = VectorBytes(limit, {static_cast<uint64_t>(channels * element),
                                          static_cast<uint64_t>(tile_bytes), alignment});
  move.vectors = channels * element / move.vector_bytes;
  const bool whole_row = tile == 0 && rule().order == MoveOrder::kTile;
  const int64_t per_thread = tile == 0 && !whole_row ? 1 : tile_bytes / move.vector_bytes;
  move.threads = (move.vectors + per_thread - 1) / per_thread;
  return move;
}

}  // namespace voxconv
