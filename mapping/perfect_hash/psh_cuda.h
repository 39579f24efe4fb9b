// Perfect spatial hashing on CUDA: tables in device memory, constructed there or on the host.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/perfect_hash/psh_builder_cpu.h"
#include "mapping/perfect_hash/psh_view.h"

namespace voxconv {

// What looking up takes of SuperPsh's tables, in device memory.
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

// SuperPsh::Build of a host copy of the rows, on all cores. Synchronises the stream.
absl::StatusOr<PshCuda> BuildPshOnHost(const CoordinateSet& voxels, const PshOptions& options,
                                       const ExecutionContext& context);
// As many buckets at once as the device has room for; the same sizes are tried, and the same errors
// returned, as on the host. Which offsets it finds differs from run to run, what is found with them
// does not. Synchronises the stream.
absl::StatusOr<PshCuda> BuildPshOnDevice(const CoordinateSet& voxels, const PshOptions& options,
                                         const ExecutionContext& context);

class PshIndexCuda : public MapIndex {
 public:
  // All lookups of one problem, as a neighbour table with masks. O(K N_out).
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

std::unique_ptr<PshIndexCuda> MakePshIndexCuda(PshCuda psh);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_CUDA_H_
