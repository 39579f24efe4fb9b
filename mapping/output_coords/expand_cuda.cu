// One kernel from inputs to outputs: into a bitmap, a list in no order, or room of each input's
// own.
#include "mapping/output_coords/unique_rows_cuda.cuh"

namespace voxconv {
namespace {

using unique_rows::Bitmap;
using unique_rows::SortedKeys;

constexpr int kThreads = 256;

// Three passes over a bitmap of this size take less time than a sort of few keys does; beyond, it
// must not be large beside the keys.
constexpr int64_t kMinMaxBitmapBytes = int64_t{24} << 20;
constexpr int64_t kMaxBitmapBytesPerKey = 64;

// Calls visit(q) for all outputs q of input row `row`; notes the row if one is outside the range.
template <typename Visit>
__device__ void EachOutput(const ExpansionLevelCuda& level, int64_t row, const Visit& visit) {
  const Coordinate p = level.inputs.rows[row];
  const auto& [x, y, z, may_leave_range] = level.rule;
  for (int32_t i = 0; i < x.count; ++i) {
    const int32_t qx = x.Candidate(p.x, i);
    if (!x.OnLattice(qx) || !x.WithinLimits(qx)) continue;
    for (int32_t j = 0; j < y.count; ++j) {
      const int32_t qy = y.Candidate(p.y, j);
      if (!y.OnLattice(qy) || !y.WithinLimits(qy)) continue;
      for (int32_t k = 0; k < z.count; ++k) {
        const int32_t qz = z.Candidate(p.z, k);
        if (!z.OnLattice(qz) || !z.WithinLimits(qz)) continue;
        if (may_leave_range && !InRange(Int3{qx, qy, qz})) {
          atomicMin(&level.info->bad_row, static_cast<unsigned long long>(row));
          continue;
        }
        visit(Coordinate{p.b, qx, qy, qz});
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) MarkKernel(ExpansionLevelCuda level, uint32_t* words) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) {
    const uint64_t number = level.cells.NumberOf(q);
    atomicOr(words + number / 32, 1u << number % 32);
  });
}

template <typename Key>
__global__ void __launch_bounds__(kThreads)
    AppendKernel(ExpansionLevelCuda level, Key* keys, unsigned long long* size) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) {
    keys[atomicAdd(size, 1ull)] = static_cast<Key>(level.cells.NumberOf(q));
  });
}

template <typename Key>
__global__ void __launch_bounds__(kThreads) WriteOwnKernel(ExpansionLevelCuda level, Key* keys) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.bound) return;
  Key* to = keys + row * level.max_outputs;
  Key* const end = to + level.max_outputs;
  if (row < level.inputs.Size()) {
    EachOutput(level, row,
               [&](const Coordinate& q) { *to++ = static_cast<Key>(level.cells.NumberOf(q)); });
  }
  while (to < end) *to++ = SortedKeys<Key>::kNone;
}

absl::Status MarkAndRead(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  const int64_t size = CeilDiv(static_cast<int64_t>(level.cells.count), 128);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint4> words, AllocateArray<uint4>(size, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(words.data(), 0, words.bytes(), *context.stream));
  VOXCONV_LAUNCH(MarkKernel, GridFor(level.inputs.bound, kThreads), kThreads, 0, context, level,
                 reinterpret_cast<uint32_t*>(words.data()));
  return unique_rows::Compact(Bitmap{words.data(), size}, level, context);
}

template <typename Key>
absl::Status AppendAndSort(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(level.max_keys(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> size,
                           AllocateArray<unsigned long long>(1, context));
  static_assert(SortedKeys<Key>::kNone == ~Key{0});
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(keys.data(), 0xff, keys.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(size.data(), 0, size.bytes(), *context.stream));
  VOXCONV_LAUNCH(AppendKernel<Key>, GridFor(level.inputs.bound, kThreads), kThreads, 0, context,
                 level, keys.data(), size.data());
  return SortUniqueRows(std::move(keys), level, context);
}

template <typename Key>
absl::Status WriteAndSort(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(level.max_keys(), context));
  VOXCONV_LAUNCH(WriteOwnKernel<Key>, GridFor(level.inputs.bound, kThreads), kThreads, 0, context,
                 level, keys.data());
  return SortUniqueRows(std::move(keys), level, context);
}

}  // namespace

absl::Status FusedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  const auto max_bytes =
      static_cast<uint64_t>(std::max(kMinMaxBitmapBytes, kMaxBitmapBytesPerKey * level.max_keys()));
  if (level.cells.count / 8 <= max_bytes) return MarkAndRead(level, context);
  return level.cells.count < kMaxNarrowCells ? AppendAndSort<uint32_t>(level, context)
                                             : AppendAndSort<uint64_t>(level, context);
}

absl::Status SortUniqueLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  return level.cells.count < kMaxNarrowCells ? WriteAndSort<uint32_t>(level, context)
                                             : WriteAndSort<uint64_t>(level, context);
}

}  // namespace voxconv
