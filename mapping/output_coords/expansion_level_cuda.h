// One level of a chain of output coordinates, as its kernels see it.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/coordinate_key.h"
#include "core/mapping.h"
#include "mapping/output_coords/candidate_rule.h"

namespace voxconv {

// CandidateRule along one axis. The kernel's offsets are an arithmetic progression.
struct AxisRuleCuda {
  int32_t first, increment, count;  // of the offsets
  int32_t step;                     // output tensor stride
  int32_t low_bits;                 // step - 1 where the step is a power of two, else -1
  int32_t lo, hi;                   // wanted outputs; may be past the coordinate range
  bool quantize;

  constexpr int32_t FloorModulo(int32_t value) const {
    if (low_bits >= 0) return value & low_bits;
    const int32_t remainder = value % step;
    return remainder < 0 ? remainder + step : remainder;
  }
  constexpr int32_t Candidate(int32_t p, int32_t i) const {
    return quantize ? p - FloorModulo(p) : p - (first + i * increment);
  }
  constexpr bool OnLattice(int32_t q) const { return FloorModulo(q) == 0; }
  constexpr bool WithinLimits(int32_t q) const { return q >= lo && q <= hi; }
};

struct CandidateRuleCuda {
  AxisRuleCuda x, y, z;
  bool may_leave_range;

  constexpr int64_t num_candidates() const { return int64_t{x.count} * y.count * z.count; }
};

// The lattice points of a box in every sample, numbered as their packed keys ascend.
struct CellsCuda {
  int32_t lo[3], step[3];
  uint32_t extent[3];
  uint64_t count;

  constexpr uint64_t NumberOf(const Coordinate& c) const {
    uint64_t number = c.b;
    number = number * extent[0] + (c.x - lo[0]) / step[0];
    number = number * extent[1] + (c.y - lo[1]) / step[1];
    return number * extent[2] + (c.z - lo[2]) / step[2];
  }
  constexpr Coordinate At(uint64_t number) const {
    Coordinate c;
    c.z = static_cast<int32_t>(Split(number, extent[2])) * step[2] + lo[2];
    c.y = static_cast<int32_t>(Split(number, extent[1])) * step[1] + lo[1];
    c.x = static_cast<int32_t>(Split(number, extent[0])) * step[0] + lo[0];
    c.b = static_cast<int32_t>(number);
    return c;
  }

 private:
  // Returns the remainder and leaves the quotient; most numbers fit the faster division.
  static constexpr uint32_t Split(uint64_t& number, uint32_t extent) {
    if (number <= UINT32_MAX) {
      const auto low = static_cast<uint32_t>(number);
      number = low / extent;
      return low % extent;
    }
    const auto remainder = static_cast<uint32_t>(number % extent);
    number /= extent;
    return remainder;
  }
};

// What the host waits for.
struct LevelInfoCuda {
  static constexpr unsigned long long kNoRow = ~0ull;

  int64_t size;                // output rows
  unsigned long long bad_row;  // the first input with an output outside the range, or kNoRow
  int32_t lo[3], hi[3];        // exact bounds of the rows
  int32_t last_batch;
  int32_t unused;  // what would be padding, copied all the same
};

struct LevelInputsCuda {
  const Coordinate* rows;
  int64_t bound;        // rows there are at most
  const int64_t* size;  // rows there are, in device memory; null: `bound`

#ifdef __CUDACC__
  __device__ int64_t Size() const { return size == nullptr ? bound : *size; }
#endif
};

struct ExpansionLevelCuda {
  LevelInputsCuda inputs;
  CandidateRuleCuda rule;
  CellsCuda cells;      // all that the rule admits
  int64_t max_outputs;  // of one input
  // What is to be computed. Of `info`, all of which is set to nothing found yet.
  Coordinate* outputs;  // sorted, once each; room for as many as there can be
  LevelInfoCuda* info;

  int64_t max_keys() const { return inputs.bound * max_outputs; }
};

// Levels that do not wait for each other, for one kernel: blockIdx.y says which.
inline constexpr size_t kMaxLevelsTogether = 8;
template <typename T>
struct PerLevel {
  T at[kMaxLevelsTogether];
};

// Each queues the work of one level with inputs.bound > 0.
absl::Status StagedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
absl::Status FusedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
absl::Status SortUniqueLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
// As FusedLevelCuda for each of them, none of which may read what another writes; two or
// more together, in bricks whatever their size, as far as that goes.
absl::Status FusedLevelsCuda(absl::Span<const ExpansionLevelCuda> levels,
                             const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_
