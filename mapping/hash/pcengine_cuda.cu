// SPDX-License-Identifier: Apache-2.0
// The table of PCEngine's release (backend/hash.cuh, backend/hash.cu): a power of two of slots, at
// least twice as many as keys; the hash is a sum of the coordinates times primes; probes are 97
// slots apart. An insertion takes a slot from whoever has it, who moves on. A second kernel writes
// the keys' values beside their rows, and a search compares values. The release's value is the
// hash, by which different coordinates can be equal. Here it is the packed key.
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/lookup_table.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

struct Slots {
  uint64_t mask;     // slots less one
  int32_t* rows;     // -1: empty
  uint64_t* values;  // of the rows

  __device__ uint64_t Home(const Coordinate& c) const { return PrimeSum(c) & mask; }
  __device__ uint64_t Next(uint64_t slot) const { return (slot + kProbeStep) & mask; }
};

struct Lookup {
  Slots slots;

  __device__ int32_t operator()(const Coordinate& position, uint64_t key) const {
    uint64_t slot = slots.Home(position);
    while (true) {
      const bool found = __ldg(slots.values + slot) == key;
      const int32_t row = __ldg(slots.rows + slot);
      if (found || row < 0) return row;
      slot = slots.Next(slot);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Coordinate* coordinates, int64_t size, Slots slots) {
  const int64_t row = GlobalThread();
  if (row >= size) return;
  uint64_t slot = slots.Home(coordinates[row]);
  int32_t moving = atomicExch(slots.rows + slot, static_cast<int32_t>(row));
  while (moving >= 0) {
    slot = slots.Next(slot);
    moving = atomicExch(slots.rows + slot, moving);
  }
}

__global__ void __launch_bounds__(kThreads)
    ValueKernel(const Coordinate* coordinates, int64_t num_slots, Slots slots) {
  const int64_t slot = GlobalThread();
  if (slot >= num_slots) return;
  const int32_t row = slots.rows[slot];
  slots.values[slot] = row < 0 ? kEmptyKey : PackKey(coordinates[row]);
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildPcengineCuda(const CoordinateSet& inputs,
                                                   const ExecutionContext& context) {
  const int64_t num_slots = PcengineSlots(inputs.size());
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(num_slots, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> values, AllocateArray<uint64_t>(num_slots, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(rows.data(), 0xff, rows.bytes(), *context.stream));
  const Slots slots{static_cast<uint64_t>(num_slots - 1), rows.data(), values.data()};
  const Coordinate* const coordinates = inputs.rows().data();
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context, coordinates,
                 inputs.size(), slots);
  VOXCONV_LAUNCH(ValueKernel, GridFor(num_slots, kThreads), kThreads, 0, context, coordinates,
                 num_slots, slots);
  return MakeLookupTable(Lookup{slots}, std::move(rows), std::move(values));
}

}  // namespace voxconv
