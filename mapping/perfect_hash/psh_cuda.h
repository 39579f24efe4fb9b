// SPDX-License-Identifier: Apache-2.0
// Perfect spatial hashing on CUDA. The tables lie in device memory. They are constructed there or
// on the host.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/perfect_hash/psh_builder_cpu.h"
#include "voxconv/mapping/perfect_hash/psh_view.h"

namespace voxconv {

// Those tables of SuperPsh that a lookup needs, in device memory.
struct PshCuda {
  Int3 stride{1, 1, 1};
  Array<PshSample> samples;
  Array<int32_t> h;                                     // [M], -1: empty
  Array<uint32_t> phi;                                  // [R]
  std::variant<Array<uint16_t>, Array<uint32_t>> tags;  // [M, 3]

  int64_t bytes() const {
    return samples.bytes() + h.bytes() + phi.bytes() +
           std::visit([](const auto& t) { return t.bytes(); }, tags);
  }
};

// Runs SuperPsh::Build on a host copy of the rows, on all cores. Synchronises the stream.
absl::StatusOr<PshCuda> BuildPshOnHost(const CoordinateSet& voxels, const PshOptions& options,
                                       const ExecutionContext& context);
// Places many buckets at once. The offset table starts with an entry for two voxels, where the
// host's has one for six, so that many buckets have one voxel, which fits in any slot that is left.
// H and T are as large as on the host. Sizes grow as on the host where a try fails, and the errors
// are the same. The tables are the same in every run. Waits for the device once for each try, and
// once more if there are several batch samples.
absl::StatusOr<PshCuda> BuildPshOnDevice(const CoordinateSet& voxels, const PshOptions& options,
                                         const ExecutionContext& context);

class PshIndexCuda : public MapIndex {
 public:
  // Makes all lookups of one problem and returns a neighbour table with masks. O(K N_out).
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                          const ExecutionContext& context) const = 0;
  // A map that makes lookups when it is asked for neighbours. It keeps the tables.
  virtual absl::StatusOr<KernelMap> Lookup(const MapProblem& problem,
                                           const ExecutionContext& context) const = 0;
};

std::unique_ptr<PshIndexCuda> MakePshIndexCuda(PshCuda psh);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_
