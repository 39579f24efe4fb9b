// Linear probing, sector by sector: a 32-byte sector of memory holds four keys, filled from the
// front, and a search goes on to the next one only if all four are taken.
//
// Keys and rows lie in two arrays: nine of ten lookups of a sparse convolution find nothing, and
// these never touch the rows. Voxels that differ in the low two bits of z alone have the same home
// sector: the three lookups of a kernel's line along z mostly share one access to memory, where a
// hash of the whole key would make three.
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
constexpr int kSectorBits = 2;
constexpr int kSector = 1 << kSectorBits;  // keys

// Where the search for a key starts.
struct Homes {
  uint64_t last;    // number of sectors, a power of two, less one
  int stride_bits;  // low bits of a key that all rows have in common

  __device__ uint64_t operator()(uint64_t key) const {
    return MixKey(key >> (stride_bits + kSectorBits)) & last;
  }
};

struct Lookup {
  Homes homes;
  const ulonglong2* keys;  // two of them a sector
  const int32_t* rows;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    for (uint64_t sector = homes(key);; sector = (sector + 1) & homes.last) {
      const ulonglong2 front = __ldg(keys + 2 * sector);
      if (front.x == key) return __ldg(rows + sector * kSector);
      if (front.y == key) return __ldg(rows + sector * kSector + 1);
      if (front.y == kEmptyKey) return -1;
      const ulonglong2 back = __ldg(keys + 2 * sector + 1);
      if (back.x == key) return __ldg(rows + sector * kSector + 2);
      if (back.y == key) return __ldg(rows + sector * kSector + 3);
      if (back.y == kEmptyKey) return -1;
    }
  }
};

// The first slot of a sector that seems free, kSector if none does. Slots are never freed: what is
// seen taken stays taken.
__device__ int FirstFree(const ulonglong2* sector) {
  const ulonglong2 front = __ldcg(sector), back = __ldcg(sector + 1);
  if (front.x == kEmptyKey) return 0;
  if (front.y == kEmptyKey) return 1;
  if (back.x == kEmptyKey) return 2;
  return back.y == kEmptyKey ? 3 : kSector;
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Coordinate* inputs, int64_t size, Homes homes, unsigned long long* keys,
                 int32_t* rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const uint64_t key = PackKey(inputs[row]);
  for (uint64_t sector = homes(key);; sector = (sector + 1) & homes.last) {
    unsigned long long* const slots = keys + sector * kSector;
    for (int i = FirstFree(reinterpret_cast<const ulonglong2*>(slots)); i < kSector; ++i) {
      if (atomicCAS(slots + i, kEmptyKey, key) != kEmptyKey) continue;
      rows[sector * kSector + i] = static_cast<int32_t>(row);
      return;
    }
  }
}

class OpenAddressingTable final : public HashTableCuda {
 public:
  OpenAddressingTable(const Homes& homes, Array<uint64_t> keys, Array<int32_t> rows)
      : homes_(homes), keys_(std::move(keys)), rows_(std::move(rows)) {}

  int64_t bytes() const override { return keys_.bytes() + rows_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                  const ExecutionContext& context) const override {
    const Lookup lookup{homes_, reinterpret_cast<const ulonglong2*>(keys_.data()), rows_.data()};
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
  const auto capacity = static_cast<int64_t>(absl::bit_ceil(std::max<uint64_t>(wanted, kSector)));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(capacity, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(capacity, context));
  const Homes homes{static_cast<uint64_t>(capacity / kSector) - 1,
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
