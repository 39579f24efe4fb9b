// What the CUDA variants of the hash mapping have in common.
#ifndef VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_
#define VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"

namespace voxconv {

// Input rows by packed key (core/coordinate_key.h); immutable, device memory.
class HashTableCuda : public MapIndex {
 public:
  // All lookups of one problem, whose outputs are read from `outputs`, as a neighbour table with
  // masks. O(K N_out) expected.
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using HashTableCudaPtr = std::unique_ptr<HashTableCuda>;

// Rows are interleaved where a CoordinateSet is taken, and then for Query too.
//
// Tables are filled to at most `load_factor`; 0 < load_factor < 1. Where a key lies depends on
// which thread came first, what is found for it does not. See the .cu files for how.

// Open addressing, four slots at a time. Queues a fill and one kernel.
absl::StatusOr<HashTableCudaPtr> BuildOpenAddressingCuda(const CoordinateRows& inputs,
                                                         double load_factor,
                                                         const ExecutionContext& context);
// Synchronises the stream, as a construction may fail: kResourceExhausted if it does with every
// seed.
absl::StatusOr<HashTableCudaPtr> BuildCuckooCuda(const CoordinateSet& inputs, double load_factor,
                                                 const ExecutionContext& context);
// Chains of slabs. Queues a fill and one kernel. `load_factor` is that of the chains' first slabs.
absl::StatusOr<HashTableCudaPtr> BuildBucketedCuda(const CoordinateSet& inputs, double load_factor,
                                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_
