// Linear probing over a power of two of slots.
//
// Keys and rows lie in two arrays: nine of ten lookups of a sparse convolution find nothing, and
// these never touch the rows. Voxels that follow each other along z have neighbouring home slots,
// four in one 32-byte sector: the three lookups of a kernel's line along z mostly share one access
// to memory, where a hash of the whole key would make three.
#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/neighbour_query.cuh"
#include "core/coordinate_key.h"
#include "mapping/hash/hash_table_cuda.h"
#include "mapping/hash/key_mix.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kSectorBits = 2;  // log2 of the keys in a sector

// Where the search for a key starts.
struct Homes {
  uint64_t last;    // number of slots, a power of two, less one
  int stride_bits;  // low bits of a key that all rows have in common

  __device__ uint64_t operator()(uint64_t key) const {
    const uint64_t voxel = key >> stride_bits;
    const uint64_t sector = MixKey(voxel >> kSectorBits);
    return (sector << kSectorBits | (voxel & ((1 << kSectorBits) - 1))) & last;
  }
};

struct Lookup {
  Homes homes;
  const unsigned long long* keys;
  const int32_t* rows;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    uint64_t slot = homes(key);
    while (true) {
      const uint64_t found = __ldg(keys + slot);
      if (found == key) return __ldg(rows + slot);
      if (found == kEmptyKey) return -1;
      slot = (slot + 1) & homes.last;
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Coordinate* inputs, int64_t size, Homes homes, unsigned long long* keys,
                 int32_t* rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const uint64_t key = PackKey(inputs[row]);
  uint64_t slot = homes(key);
  while (atomicCAS(keys + slot, kEmptyKey, key) != kEmptyKey) slot = (slot + 1) & homes.last;
  rows[slot] = static_cast<int32_t>(row);
}

class OpenAddressingTable final : public HashTableCuda {
 public:
  OpenAddressingTable(const Homes& homes, Array<uint64_t> keys, Array<int32_t> rows)
      : homes_(homes), keys_(std::move(keys)), rows_(std::move(rows)) {}

  int64_t bytes() const override { return keys_.bytes() + rows_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                  const ExecutionContext& context) const override {
    const Lookup lookup{homes_, reinterpret_cast<const unsigned long long*>(keys_.data()),
                        rows_.data()};
    return QueryNeighbours(lookup, problem, symmetric, context);
  }

 private:
  Homes homes_;
  Array<uint64_t> keys_;
  Array<int32_t> rows_;
};

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildOpenAddressingCuda(const CoordinateSet& inputs,
                                                         double load_factor,
                                                         const ExecutionContext& context) {
  // At least one slot stays empty, as load_factor < 1, and ends every search.
  const auto wanted = static_cast<uint64_t>(static_cast<double>(inputs.size()) / load_factor) + 1;
  const auto capacity =
      static_cast<int64_t>(absl::bit_ceil(std::max<uint64_t>(wanted, 1 << kSectorBits)));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(capacity, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(capacity, context));
  const Homes homes{static_cast<uint64_t>(capacity) - 1,
                    absl::countr_zero(static_cast<uint32_t>(inputs.tensor_stride().z))};
  static_assert(kEmptyKey == 0);
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(keys.data(), 0, keys.bytes(), *context.stream));
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 inputs.rows().data(), inputs.size(), homes,
                 reinterpret_cast<unsigned long long*>(keys.data()), rows.data());
  return std::make_unique<OpenAddressingTable>(homes, std::move(keys), std::move(rows));
}

}  // namespace voxconv
