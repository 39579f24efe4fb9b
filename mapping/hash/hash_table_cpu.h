// SPDX-License-Identifier: Apache-2.0
// What the CPU variants of the hash mapping have in common.
#ifndef VOXCONV_MAPPING_HASH_HASH_TABLE_CPU_H_
#define VOXCONV_MAPPING_HASH_HASH_TABLE_CPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// Input rows by voxel (core/coordinate_key.h); immutable, host memory.
class HashTableCpu : public MapIndex {
 public:
  // Sets rows[i] to the input row of keys[i], or to -1. `rows` is [keys.size()]. kEmptyKey is never
  // found. Concurrent calls are allowed.
  virtual absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const = 0;
};

using HashTableCpuPtr = std::unique_ptr<HashTableCpu>;

// These functions build tables that are filled to at most `load_factor`, 0 < load_factor < 1. They
// return kResourceExhausted if memory is lacking. All tables find the same rows, in every run. The
// .cc files describe the algorithms.
absl::StatusOr<HashTableCpuPtr> BuildOpenAddressingCpu(const CoordinateRows& inputs,
                                                       double load_factor,
                                                       const ExecutionContext& context);
absl::StatusOr<HashTableCpuPtr> BuildCuckooCpu(const CoordinateSet& inputs, double load_factor,
                                               const ExecutionContext& context);
// Each query reads the rows of `inputs`, which bytes() does not count.
absl::StatusOr<HashTableCpuPtr> BuildMinkowskiCpu(const CoordinateSet& inputs, double load_factor,
                                                  const ExecutionContext& context);
// PCEngine's table (pcengine_cuda.cu).
absl::StatusOr<HashTableCpuPtr> BuildPcengineCpu(const CoordinateSet& inputs,
                                                 const ExecutionContext& context);
// Each query reads the rows of `inputs`, which bytes() does not count. The table has the engine's
// sizes (torchsparse1_table.h). kResourceExhausted also if a row finds no place.
absl::StatusOr<HashTableCpuPtr> BuildTorchsparse1Cpu(const CoordinateSet& inputs,
                                                     const ExecutionContext& context);
absl::StatusOr<HashTableCpuPtr> BuildStdCpu(const CoordinateSet& inputs,
                                            const ExecutionContext& context);
// kUnimplemented in a build without Open3D.
absl::StatusOr<HashTableCpuPtr> BuildOpen3dCpu(const CoordinateSet& inputs,
                                               const ExecutionContext& context);
bool HaveOpen3d();

// Makes all lookups of one problem. It reads the output rows from `outputs`. O(K N_out) expected.
absl::StatusOr<KernelMap> QueryHashTableCpu(const HashTableCpu& table, const MapProblem& problem,
                                            const CoordinateRows& outputs, bool symmetric,
                                            const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_HASH_TABLE_CPU_H_
