// SPDX-License-Identifier: Apache-2.0
// TorchSparse's cuckoo table and its map search on CUDA: see torchsparse1_table.h. As in the
// engine, one kernel writes the hashes of all queries, and another looks them up. Both arrays,
// hashes and results, are int64 [K, N_out]: 16 bytes a query. A result is the input row + 1, and 0
// where there is none. The engine then makes pairs of the results with operators of PyTorch. We
// make the neighbour table of them with one kernel.
//
// The engine's threads each copy all kernel offsets to shared memory first. Ours are kernel
// parameters.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/torchsparse1_table.h"

namespace voxconv {
namespace {

using neighbour_query::kMaxOffsets;
using neighbour_query::Offsets;
using torchsparse1::Functions;
using torchsparse1::kBucket;
using torchsparse1::kFunctions;
using torchsparse1::Sizes;

constexpr int kThreads = kBucket;  // as the engine's kernels have

// The arrays of a table. All have sizes.entries() elements for each function, or one for each row.
struct Buffers {
  Array<int64_t> hashes;       // [entries]: bucket by bucket, in the order of their arrival
  Array<int64_t> rows;         // [entries]
  Array<int32_t> counts;       // [buckets]: entries that arrived
  Array<int32_t> failed;       // [1]: not 0: an entry has no place
  Array<int64_t> slot_hashes;  // [kFunctions, entries]
  Array<int64_t> slot_rows;    // [kFunctions, entries]: row + 1; 0: empty
};

__global__ void __launch_bounds__(kThreads)
    DistributeKernel(const Coordinate* coordinates, int64_t size, int64_t buckets, int64_t* hashes,
                     int64_t* rows, int32_t* counts, int32_t* failed) {
  const int64_t row = GlobalThread();
  if (row >= size) return;
  const uint64_t hash = Fnv1a60(coordinates[row]);
  const auto bucket = static_cast<int64_t>(hash % static_cast<uint64_t>(buckets));
  const int32_t place = atomicAdd(counts + bucket, 1);
  if (place >= kBucket) {
    *failed = 1;
    return;
  }
  hashes[bucket * kBucket + place] = static_cast<int64_t>(hash);
  rows[bucket * kBucket + place] = row;
}

// One block a bucket, one thread an entry. A slot is (entry + 1) * 4 + function while entries move.
__global__ void __launch_bounds__(kThreads)
    PlaceKernel(const int64_t* hashes, const int64_t* rows, const int32_t* counts,
                const Functions functions, int most_evictions, int64_t entries,
                int64_t* slot_hashes, int64_t* slot_rows, int32_t* failed) {
  __shared__ uint32_t slots[kFunctions][kBucket];
  for (int f = 0; f < kFunctions; ++f) slots[f][threadIdx.x] = 0;
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * kBucket;
  uint32_t entry = threadIdx.x;
  int f = 0;
  bool placed = entry >= static_cast<uint32_t>(counts[blockIdx.x]);
  for (int evictions = 0; !placed && evictions <= most_evictions; ++evictions) {
    const auto hash = static_cast<uint64_t>(hashes[first + entry]);
    const uint32_t before =
        atomicExch(&slots[f][functions.function[f].SlotOf(hash)], (entry + 1) * 4 + f);
    placed = before == 0;
    if (placed) break;
    entry = before / 4 - 1;
    f = static_cast<int>(before % 4 + 1) % kFunctions;
  }
  if (!placed) *failed = 1;
  __syncthreads();
  for (int g = 0; g < kFunctions; ++g) {
    const uint32_t slot = slots[g][threadIdx.x];
    const int64_t at = g * entries + first + threadIdx.x;
    slot_hashes[at] = slot == 0 ? 0 : hashes[first + slot / 4 - 1];
    slot_rows[at] = slot == 0 ? 0 : rows[first + slot / 4 - 1] + 1;
  }
}

__device__ Coordinate Query(const Coordinate& q, const Int3& offset) {
  return {q.b, q.x + offset.x, q.y + offset.y, q.z + offset.z};
}

// Neighbouring threads take neighbouring offsets of a row, as in the engine.
__global__ void __launch_bounds__(kThreads)
    HashKernel(const Coordinate* outputs, int64_t num_rows, const Offsets offsets, int count,
               int64_t* hashes) {
  const int64_t i = GlobalThread();
  if (i >= num_rows * count) return;
  const int64_t row = i / count;
  const auto k = static_cast<int>(i - row * count);
  hashes[k * num_rows + row] =
      static_cast<int64_t>(Fnv1a60(Query(outputs[row], offsets.offset[k])));
}

struct Slots {
  Functions functions;
  int64_t buckets;
  const int64_t *hashes, *rows;
  const Coordinate* coordinates;  // of the inputs
};

// results[k, row] = the input row at outputs[row] + offset k, + 1.
__global__ void __launch_bounds__(kThreads)
    LookUpKernel(const int64_t* hashes, const Slots slots, const Coordinate* outputs,
                 int64_t num_rows, const Offsets offsets, int count, int64_t* results) {
  const int64_t i = GlobalThread();
  if (i >= num_rows * count) return;
  const auto hash = static_cast<uint64_t>(hashes[i]);
  const auto bucket = static_cast<int64_t>(hash % static_cast<uint64_t>(slots.buckets));
  int64_t result = 0;
  for (int f = 0; f < kFunctions && result == 0; ++f) {
    const int64_t at =
        (f * slots.buckets + bucket) * kBucket + slots.functions.function[f].SlotOf(hash);
    if (static_cast<uint64_t>(slots.hashes[at]) != hash || slots.rows[at] == 0) continue;
    const auto k = static_cast<int>(i / num_rows);
    const Coordinate wanted = Query(outputs[i - k * num_rows], offsets.offset[k]);
    const Coordinate c = slots.coordinates[slots.rows[at] - 1];
    const bool same = c.b == wanted.b && c.x == wanted.x && c.y == wanted.y && c.z == wanted.z;
    if (same) result = slots.rows[at];
  }
  results[i] = result;
}

// The offsets [first, first + count) of the table and its masks, one thread an output row. `first`
// is a multiple of 32.
__global__ void __launch_bounds__(kThreads)
    WriteTableKernel(const int64_t* results, int64_t num_rows, int first, int count,
                     int num_offsets, int32_t* table, uint32_t* masks) {
  const int64_t row = GlobalThread();
  if (row >= num_rows) return;
  const int words = (num_offsets + 31) / 32;
  uint32_t mask = 0;
  for (int k = 0; k < count; ++k) {
    const auto found = static_cast<int32_t>(results[k * num_rows + row]) - 1;
    table[row * num_offsets + first + k] = found;
    if (found >= 0) mask |= 1u << k % 32;
    if (k % 32 != 31 && k + 1 != count) continue;
    masks[row * words + (first + k) / 32] = mask;
    mask = 0;
  }
}

// The same where half of the offsets were looked up: writes each pair and its mirror, into a table
// of -1 and masks of 0. With the centre if `first` is 0.
__global__ void __launch_bounds__(kThreads)
    WriteBothKernel(const int64_t* results, int64_t num_rows, int first, int count, int num_offsets,
                    int32_t* table, uint32_t* masks) {
  const int64_t row = GlobalThread();
  if (row >= num_rows) return;
  const int words = (num_offsets + 31) / 32;
  const auto write = [&](int64_t q, int k, int64_t p) {
    table[q * num_offsets + k] = static_cast<int32_t>(p);
    atomicOr(masks + q * words + k / 32, 1u << k % 32);
  };
  for (int k = 0; k < count; ++k) {
    const int64_t found = results[k * num_rows + row] - 1;
    if (found < 0) continue;
    write(row, first + k, found);
    write(found, num_offsets - 1 - first - k, row);
  }
  if (first == 0) write(row, num_offsets / 2, row);
}

class Torchsparse1Table final : public HashTableCuda {
 public:
  Torchsparse1Table(const Coordinate* coordinates, const Sizes& sizes, const Functions& functions,
                    Array<int64_t> hashes, Array<int64_t> rows)
      : coordinates_(coordinates),
        sizes_(sizes),
        functions_(functions),
        hashes_(std::move(hashes)),
        rows_(std::move(rows)) {}

  int64_t bytes() const override { return hashes_.bytes() + rows_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!outputs.planar() && (!symmetric || problem.geometry.symmetric()));
    const int num_offsets = problem.geometry.num_offsets();
    symmetric = symmetric && num_offsets > 1;
    const int probed = symmetric ? num_offsets / 2 : num_offsets;
    const int64_t rows = problem.outputs.size();
    VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
    if (symmetric) {
      Backend& backend = *context.backend;
      VOXCONV_RETURN_IF_ERROR(
          backend.FillBytes(arrays.table.data(), 0xff, arrays.table.bytes(), *context.stream));
      VOXCONV_RETURN_IF_ERROR(
          backend.FillBytes(arrays.masks.data(), 0, arrays.masks.bytes(), *context.stream));
    }
    const int64_t most = rows * std::min(probed, kMaxOffsets);
    VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> hashes, AllocateArray<int64_t>(most, context));
    VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> results, AllocateArray<int64_t>(most, context));
    for (int first = 0; first < probed; first += kMaxOffsets) {
      const int count = std::min(kMaxOffsets, probed - first);
      VOXCONV_RETURN_IF_ERROR(LookUp(problem, first, count, hashes, results, context));
      const auto write = symmetric ? WriteBothKernel : WriteTableKernel;
      VOXCONV_LAUNCH(write, GridFor(rows, kThreads), kThreads, 0, context, results.data(), rows,
                     first, count, num_offsets, arrays.table.data(), arrays.masks.data());
    }
    if (Counters* counters = context.counters()) counters->queries += probed * rows;
    return MakeNeighbourMap(problem, std::move(arrays));
  }

 private:
  absl::Status LookUp(const MapProblem& problem, int first, int count, Array<int64_t>& hashes,
                      Array<int64_t>& results, const ExecutionContext& context) const {
    Offsets offsets{};
    std::copy_n(problem.geometry.input_offsets().begin() + first, count, offsets.offset);
    const Coordinate* const outputs = problem.outputs.rows().data();
    const int64_t rows = problem.outputs.size();
    const Slots slots{functions_, sizes_.buckets, hashes_.data(), rows_.data(), coordinates_};
    const dim3 grid = GridFor(rows * count, kThreads);
    VOXCONV_LAUNCH(HashKernel, grid, kThreads, 0, context, outputs, rows, offsets, count,
                   hashes.data());
    VOXCONV_LAUNCH(LookUpKernel, grid, kThreads, 0, context, hashes.data(), slots, outputs, rows,
                   offsets, count, results.data());
    return absl::OkStatus();
  }

  const Coordinate* coordinates_;  // of the set, which outlives the index
  Sizes sizes_;
  Functions functions_;
  Array<int64_t> hashes_, rows_;  // [kFunctions, buckets, kBucket]; rows + 1; 0: empty
};

absl::StatusOr<Buffers> Allocate(const Sizes& sizes, const ExecutionContext& context) {
  Buffers to;
  VOXCONV_ASSIGN_OR_RETURN(to.hashes, AllocateArray<int64_t>(sizes.entries(), context));
  VOXCONV_ASSIGN_OR_RETURN(to.rows, AllocateArray<int64_t>(sizes.entries(), context));
  VOXCONV_ASSIGN_OR_RETURN(to.counts, AllocateArray<int32_t>(sizes.buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(to.failed, AllocateArray<int32_t>(1, context));
  VOXCONV_ASSIGN_OR_RETURN(to.slot_hashes, AllocateArray<int64_t>(sizes.slots(), context));
  VOXCONV_ASSIGN_OR_RETURN(to.slot_rows, AllocateArray<int64_t>(sizes.slots(), context));
  return to;
}

absl::Status Clear(Array<int32_t>& array, const ExecutionContext& context) {
  return context.backend->FillBytes(array.data(), 0, array.bytes(), *context.stream);
}

// Whether all entries have a place so far. Synchronises the stream.
absl::StatusOr<bool> Succeeded(const Buffers& buffers, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> failed, CopyToHost(buffers.failed, context));
  return failed[0] == 0;
}

// The functions with which all entries found their slots; none if a bucket has too many entries or
// no attempt placed them.
absl::StatusOr<std::optional<Functions>> Fill(const CoordinateSet& inputs, const Sizes& sizes,
                                              Buffers& buffers, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(Clear(buffers.counts, context));
  VOXCONV_RETURN_IF_ERROR(Clear(buffers.failed, context));
  VOXCONV_LAUNCH(DistributeKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 inputs.rows().data(), inputs.size(), sizes.buckets, buffers.hashes.data(),
                 buffers.rows.data(), buffers.counts.data(), buffers.failed.data());
  VOXCONV_ASSIGN_OR_RETURN(const bool fits, Succeeded(buffers, context));
  if (!fits) return std::nullopt;
  for (int attempt = 0; attempt < torchsparse1::kMostAttempts; ++attempt) {
    const Functions functions = torchsparse1::FunctionsOf(attempt, sizes.buckets);
    VOXCONV_RETURN_IF_ERROR(Clear(buffers.failed, context));
    VOXCONV_LAUNCH(PlaceKernel, dim3(static_cast<unsigned>(sizes.buckets)), kThreads, 0, context,
                   buffers.hashes.data(), buffers.rows.data(), buffers.counts.data(), functions,
                   sizes.most_evictions, sizes.entries(), buffers.slot_hashes.data(),
                   buffers.slot_rows.data(), buffers.failed.data());
    VOXCONV_ASSIGN_OR_RETURN(const bool placed, Succeeded(buffers, context));
    if (placed) return functions;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildTorchsparse1Cuda(const CoordinateSet& inputs,
                                                       const ExecutionContext& context) {
  for (int doublings = 0; doublings <= torchsparse1::kMostDoublings; ++doublings) {
    const Sizes sizes = Sizes::Of(inputs.size(), doublings);
    VOXCONV_ASSIGN_OR_RETURN(Buffers buffers, Allocate(sizes, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::optional<Functions> functions,
                             Fill(inputs, sizes, buffers, context));
    if (!functions.has_value()) continue;
    return std::make_unique<Torchsparse1Table>(inputs.rows().data(), sizes, *functions,
                                               std::move(buffers.slot_hashes),
                                               std::move(buffers.slot_rows));
  }
  return torchsparse1::NoPlace(inputs.size());
}

}  // namespace voxconv
