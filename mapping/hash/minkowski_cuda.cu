// SPDX-License-Identifier: Apache-2.0
// The table of MinkowskiEngine's GPU coordinate map (0.5.4, src/coordinate_map_gpu.cuh and
// src/3rdparty/concurrent_unordered_map.cuh): linear probing from MurmurHash3 modulo the number of
// slots, which need not be a power of two. A slot does not hold a key but leads to the coordinates,
// and every comparison reads these there. The engine fills the table to a quarter, and to half with
// MinkowskiAlgorithm.MEMORY_EFFICIENT (src/coordinate_map_manager.hpp): load_factor=0.25 and 0.5
// here. Its slots hold a pointer to the coordinates and their row, 16 bytes.
// Here the row serves as both, in 4 bytes.
#include <cmath>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/mapping/hash/coordinate_hash.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/lookup_table.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

struct Slots {
  uint64_t size;
  int32_t* rows;  // -1: empty

  __device__ uint64_t Home(const Coordinate& c) const { return Murmur3(c) % size; }
  __device__ uint64_t Next(uint64_t slot) const { return slot + 1 == size ? 0 : slot + 1; }
};

struct Lookup {
  Slots slots;
  InterleavedRows coordinates;

  __device__ int32_t operator()(const Coordinate& position, uint64_t) const {
    uint64_t slot = slots.Home(position);
    while (true) {
      const int32_t row = __ldg(slots.rows + slot);
      if (row < 0) return -1;
      const Coordinate c = LoadRow(coordinates, row);
      if (c.b == position.b && c.x == position.x && c.y == position.y && c.z == position.z) {
        return row;
      }
      slot = slots.Next(slot);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const InterleavedRows coordinates, int64_t size, Slots slots) {
  const int64_t row = GlobalThread();
  if (row >= size) return;
  uint64_t slot = slots.Home(LoadRow(coordinates, row));
  while (atomicCAS(slots.rows + slot, -1, static_cast<int32_t>(row)) != -1) {
    slot = slots.Next(slot);
  }
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildMinkowskiCuda(const CoordinateSet& inputs, double load_factor,
                                                    const ExecutionContext& context) {
  // One slot at least stays empty and ends a search.
  const auto num_slots =
      static_cast<int64_t>(std::ceil(static_cast<double>(inputs.size()) / load_factor)) + 1;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> slots, AllocateArray<int32_t>(num_slots, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(slots.data(), 0xff, slots.bytes(), *context.stream));
  // The set of the coordinates outlives the index.
  const Lookup lookup{{static_cast<uint64_t>(num_slots), slots.data()},
                      InterleavedRows{inputs.rows().data()}};
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 lookup.coordinates, inputs.size(), lookup.slots);
  return MakeLookupTable(lookup, std::move(slots));
}

}  // namespace voxconv
