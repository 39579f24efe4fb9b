// SPDX-License-Identifier: Apache-2.0
// Open addressing by sectors (sector_probing.cuh).
//
// Keys and rows lie in two arrays: nine of ten lookups of a sparse convolution find nothing, and
// these never touch the rows. Voxels that differ in the low two bits of z alone have the same home
// sector: the three lookups of a kernel's line along z mostly share one access to memory, where a
// hash of the whole key would make three.
#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/sector_probing.cuh"

namespace voxconv {
namespace {

using sector_probing::kSector;
using sector_probing::kSectorBits;
using sector_probing::Probes;

constexpr int kThreads = 256;
// Sectors there can be: a number of 32 bits. Still two slots and more for each of the most rows.
constexpr int64_t kMaxCapacity = int64_t{kSector} << 32;
// Tables below this many slots (8 MiB of keys) get twice the room they need: in the L2 cache it
// costs little more than its clearing, and searches are shorter.
constexpr int64_t kRoomyCapacity = int64_t{1} << 20;

struct Lookup {
  Probes probes;
  const ulonglong2* keys;
  const int32_t* rows;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    const int64_t slot = sector_probing::FindSlot(probes, keys, key);
    return slot < 0 ? -1 : __ldg(rows + slot);
  }
};

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Rows inputs, int64_t size, Probes probes, unsigned long long* keys,
                 int32_t* rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const uint64_t key = PackKey(LoadRow(inputs, row));
  rows[sector_probing::ClaimSlot(probes, keys, key)] = static_cast<int32_t>(row);
}

class OpenAddressingTable final : public HashTableCuda {
 public:
  OpenAddressingTable(const Probes& probes, Array<uint64_t> keys, Array<int32_t> rows, bool scalar)
      : probes_(probes), keys_(std::move(keys)), rows_(std::move(rows)), scalar_(scalar) {}

  int64_t bytes() const override { return keys_.bytes() + rows_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    const Lookup lookup{probes_, reinterpret_cast<const ulonglong2*>(keys_.data()), rows_.data()};
    return VisitRows(outputs, scalar_, [&](const auto rows) {
      return QueryNeighbours(lookup, rows, problem, symmetric, context);
    });
  }

 private:
  Probes probes_;
  Array<uint64_t> keys_;
  Array<int32_t> rows_;
  bool scalar_;
};

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildOpenAddressingCuda(const CoordinateRows& inputs,
                                                         double load_factor, bool scalar,
                                                         const ExecutionContext& context) {
  // At least one slot stays empty, as load_factor < 1, and ends every search.
  const auto wanted = static_cast<uint64_t>(static_cast<double>(inputs.size()) / load_factor) + 1;
  auto capacity = static_cast<int64_t>(absl::bit_ceil(std::max<uint64_t>(wanted, kSector)));
  capacity = std::min(capacity < kRoomyCapacity ? 2 * capacity : capacity, kMaxCapacity);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(capacity, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(capacity, context));
  const Probes probes{
      static_cast<uint32_t>(capacity / kSector - 1),
      absl::countr_zero(static_cast<uint32_t>(inputs.set().tensor_stride().z)) + kSectorBits};
  static_assert(kEmptyKey == 0);
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(keys.data(), 0, keys.bytes(), *context.stream));
  const auto insert = [&](auto input_rows) -> absl::Status {
    VOXCONV_LAUNCH(InsertKernel<decltype(input_rows)>, GridFor(inputs.size(), kThreads), kThreads,
                   0, context, input_rows, inputs.size(), probes,
                   reinterpret_cast<unsigned long long*>(keys.data()), rows.data());
    return absl::OkStatus();
  };
  VOXCONV_RETURN_IF_ERROR(VisitRows(inputs, scalar, insert));
  return std::make_unique<OpenAddressingTable>(probes, std::move(keys), std::move(rows), scalar);
}

}  // namespace voxconv
