// SPDX-License-Identifier: Apache-2.0
// TorchSparse's Algorithm 3 with a kernel for each of its steps; every candidate goes through
// memory from one to the next.
#include <cub/device/device_select.cuh>

#include "voxconv/mapping/output_coords/unique_rows_cuda.cuh"

namespace voxconv {
namespace {

using unique_rows::SortedKeys;

constexpr int kThreads = 256;
constexpr int32_t kNoBatch = -1;  // of candidates of rows past the inputs' end

__global__ void __launch_bounds__(kThreads)
    CandidatesKernel(ExpansionLevelCuda level, int64_t size, Coordinate* candidates) {
  const int64_t index = GlobalThread();
  if (index >= size) return;
  const CandidateRuleCuda& rule = level.rule;
  const int64_t row = index / rule.num_candidates();
  if (row >= level.inputs.Size()) {
    candidates[index] = {kNoBatch, 0, 0, 0};
    return;
  }
  auto offset = static_cast<int32_t>(index - row * rule.num_candidates());
  const int32_t z = offset % rule.z.count;
  offset /= rule.z.count;
  const Coordinate p = level.inputs.rows[row];
  candidates[index] = {p.b, rule.x.Candidate(p.x, offset / rule.y.count),
                       rule.y.Candidate(p.y, offset % rule.y.count), rule.z.Candidate(p.z, z)};
}

__global__ void __launch_bounds__(kThreads)
    ModularKernel(CandidateRuleCuda rule, const Coordinate* candidates, int64_t size,
                  uint8_t* keep) {
  const int64_t index = GlobalThread();
  if (index >= size) return;
  const Coordinate q = candidates[index];
  keep[index] =
      q.b != kNoBatch && rule.x.OnLattice(q.x) && rule.y.OnLattice(q.y) && rule.z.OnLattice(q.z);
}

__global__ void __launch_bounds__(kThreads)
    BoundaryKernel(ExpansionLevelCuda level, const Coordinate* candidates, int64_t size,
                   uint8_t* keep) {
  const int64_t index = GlobalThread();
  if (index >= size || keep[index] == 0) return;
  const CandidateRuleCuda& rule = level.rule;
  const Coordinate q = candidates[index];
  bool within = rule.x.WithinLimits(q.x) && rule.y.WithinLimits(q.y) && rule.z.WithinLimits(q.z);
  if (within && rule.may_leave_range && !InRange(Int3{q.x, q.y, q.z})) {
    within = false;
    atomicMin(&level.info->bad_row, static_cast<unsigned long long>(index / rule.num_candidates()));
  }
  keep[index] = within;
}

template <typename Key>
__global__ void __launch_bounds__(kThreads)
    NumberKernel(CellsCuda cells, const Coordinate* kept, const int64_t* num_kept, int64_t size,
                 Key* keys) {
  const int64_t index = GlobalThread();
  if (index >= size) return;
  keys[index] =
      index < *num_kept ? static_cast<Key>(cells.NumberOf(kept[index])) : SortedKeys<Key>::kNone;
}

template <typename Key>
absl::Status NumberAndSort(const ExpansionLevelCuda& level, const Array<Coordinate>& kept,
                           const int64_t* num_kept, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(kept.size(), context));
  VOXCONV_LAUNCH(NumberKernel<Key>, GridFor(kept.size(), kThreads), kThreads, 0, context,
                 level.cells, kept.data(), num_kept, kept.size(), keys.data());
  return SortUniqueRows(std::move(keys), level, context);
}

}  // namespace

absl::Status StagedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  const int64_t size = level.inputs.bound * level.rule.num_candidates();
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> candidates, AllocateArray<Coordinate>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> keep, AllocateArray<uint8_t>(size, context));
  const dim3 grid = GridFor(size, kThreads);
  VOXCONV_LAUNCH(CandidatesKernel, grid, kThreads, 0, context, level, size, candidates.data());
  VOXCONV_LAUNCH(ModularKernel, grid, kThreads, 0, context, level.rule, candidates.data(), size,
                 keep.data());
  VOXCONV_LAUNCH(BoundaryKernel, grid, kThreads, 0, context, level, candidates.data(), size,
                 keep.data());
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> kept,
                           AllocateArray<Coordinate>(level.max_keys(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> num_kept, AllocateArray<int64_t>(1, context));
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceSelect::Flagged(temp, bytes, candidates.data(), keep.data(), kept.data(),
                                      num_kept.data(), size, CudaStreamOf(context));
  }));
  return level.cells.count < kMaxNarrowCells
             ? NumberAndSort<uint32_t>(level, kept, num_kept.data(), context)
             : NumberAndSort<uint64_t>(level, kept, num_kept.data(), context);
}

}  // namespace voxconv
