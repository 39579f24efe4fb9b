// SPDX-License-Identifier: Apache-2.0
// What the CUDA variants of the hash mapping have in common.
#ifndef VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_
#define VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// Input rows by voxel (core/coordinate_key.h); immutable, device memory.
class HashTableCuda : public MapIndex {
 public:
  // Makes all lookups of one problem and returns a neighbour table with masks. It reads the output
  // rows from `outputs`. O(K N_out) expected.
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using HashTableCudaPtr = std::unique_ptr<HashTableCuda>;

// A table built from a CoordinateSet reads interleaved rows, and its Query takes only interleaved
// rows.
//
// Tables are filled to at most `load_factor`, 0 < load_factor < 1. The place of a key depends on
// which thread comes first. The row found for it does not. The .cu files describe the algorithms.

// Open addressing, four slots at a time. Queues a fill and one kernel. `scalar`: kernels read rows
// number by number (ScalarRows).
absl::StatusOr<HashTableCudaPtr> BuildOpenAddressingCuda(const CoordinateRows& inputs,
                                                         double load_factor, bool scalar,
                                                         const ExecutionContext& context);
// Open addressing of bricks of 2 x 2 x 2 voxels. Queues a fill and one kernel.
absl::StatusOr<HashTableCudaPtr> BuildBricksCuda(const CoordinateSet& inputs, double load_factor,
                                                 const ExecutionContext& context);
// Cuckoo hashing. Synchronises the stream, because a construction can fail and is then tried again
// with another seed. kResourceExhausted if it fails with every seed.
absl::StatusOr<HashTableCudaPtr> BuildCuckooCuda(const CoordinateSet& inputs, double load_factor,
                                                 const ExecutionContext& context);
// Chains of slabs. Queues a fill and one kernel. `load_factor` holds for the first slabs of
// the chains.
absl::StatusOr<HashTableCudaPtr> BuildBucketedCuda(const CoordinateSet& inputs, double load_factor,
                                                   const ExecutionContext& context);
// Linear probing of slots that lead to the coordinates. Each query reads the rows of `inputs`,
// which bytes() does not count. Queues a fill and one kernel.
absl::StatusOr<HashTableCudaPtr> BuildMinkowskiCuda(const CoordinateSet& inputs, double load_factor,
                                                    const ExecutionContext& context);

// PCEngine's table (pcengine_cuda.cu). Queues a fill and two kernels.
absl::StatusOr<HashTableCudaPtr> BuildPcengineCuda(const CoordinateSet& inputs,
                                                   const ExecutionContext& context);

// Open3D's slab back end. Each query reads the rows of `inputs`, which bytes() does not count. 260
// bytes a row. Queues two fills and one kernel.
absl::StatusOr<HashTableCudaPtr> BuildOpen3dCuda(const CoordinateSet& inputs,
                                                 const ExecutionContext& context);

// TorchSparse's two levels of cuckoo hashing (torchsparse1_table.h). Each query reads the rows of
// `inputs`, which bytes() does not count, and takes 16 bytes for each row and offset, of at most
// 128 offsets at a time. Synchronises the stream, because a construction can fail and is then tried
// again with other functions. kResourceExhausted if it fails with all of them.
absl::StatusOr<HashTableCudaPtr> BuildTorchsparse1Cuda(const CoordinateSet& inputs,
                                                       const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_HASH_TABLE_CUDA_H_
