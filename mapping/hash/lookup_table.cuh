// SPDX-License-Identifier: Apache-2.0
// A hash table on CUDA that is its arrays and the lookup that reads them. Only .cu files include
// this header.
#ifndef VOXCONV_MAPPING_HASH_LOOKUP_TABLE_CUH_
#define VOXCONV_MAPPING_HASH_LOOKUP_TABLE_CUH_

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/hash/hash_table_cuda.h"

namespace voxconv {

// Queries call QueryNeighbours with `lookup`. It points into `arrays`, which the table owns. Takes
// interleaved output rows alone (checked).
template <typename Lookup, typename... T>
class LookupTable final : public HashTableCuda {
 public:
  explicit LookupTable(const Lookup& lookup, Array<T>... arrays)
      : lookup_(lookup), arrays_(std::move(arrays)...) {}

  int64_t bytes() const override {
    return std::apply([](const auto&... array) { return (array.bytes() + ...); }, arrays_);
  }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!outputs.planar());
    return QueryNeighbours(lookup_, problem, symmetric, context);
  }

 private:
  Lookup lookup_;
  std::tuple<Array<T>...> arrays_;
};

template <typename Lookup, typename... T>
HashTableCudaPtr MakeLookupTable(const Lookup& lookup, Array<T>... arrays) {
  return std::make_unique<LookupTable<Lookup, T...>>(lookup, std::move(arrays)...);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_LOOKUP_TABLE_CUH_
