// SPDX-License-Identifier: Apache-2.0
// One level of a chain of output coordinates, as kernels take it. All pointers are to device
// memory.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/output_coords/candidate_rule.h"

namespace voxconv {

// CandidateRule along one axis. The kernel's offsets are an arithmetic progression.
struct AxisRuleCuda {
  int32_t first, increment, count;  // the progression of the offsets
  int32_t step;                     // output tensor stride
  int32_t low_bits;                 // step - 1 if the step is a power of two, else -1
  int32_t lo, hi;                   // limits of the outputs; may be outside the coordinate range
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

// The lattice points of a box in every sample. Their numbers ascend as their packed keys do.
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
  // Returns the remainder and sets `number` to the quotient. Most numbers fit in 32 bits, for which
  // the division is faster.
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

// The results of a level that the host waits for.
struct LevelInfoCuda {
  static constexpr unsigned long long kNoRow = ~0ull;

  int64_t size;                // output rows
  unsigned long long bad_row;  // the first input with an output outside the range, or kNoRow
  int32_t lo[3], hi[3];        // exact bounds of the rows
  int32_t last_batch;
  int32_t unused;  // names the padding, so that all bytes that are copied have a value
};

struct LevelInputsCuda {
  const Coordinate* rows;
  int64_t bound;        // the most rows there can be
  const int64_t* size;  // the number of rows, in device memory; null: it is `bound`

#ifdef __CUDACC__
  __device__ int64_t Size() const { return size == nullptr ? bound : *size; }
#endif
};

struct ExpansionLevelCuda {
  LevelInputsCuda inputs;
  CandidateRuleCuda rule;
  CellsCuda cells;      // all positions that the rule admits
  int64_t max_outputs;  // the most outputs of one input
  // The results. The caller sets `info` to the values of an empty level first.
  Coordinate* outputs;  // sorted, without repetitions; has room for the most there can be
  LevelInfoCuda* info;

  int64_t max_keys() const { return inputs.bound * max_outputs; }
};

// Values for the levels that one kernel computes. The levels do not depend on each other.
// blockIdx.y is the level.
inline constexpr size_t kMaxLevelsTogether = 8;
template <typename T>
struct PerLevel {
  T at[kMaxLevelsTogether];
};

// Each function queues the work of one level on the context's stream. inputs.bound must be > 0.
absl::Status StagedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
absl::Status FusedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
absl::Status AppendedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
absl::Status SortUniqueLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context);
// `max_bytes`: the largest array of places; beyond it there is a hash table.
absl::Status LocationTableLevelCuda(const ExpansionLevelCuda& level, int64_t max_bytes,
                                    const ExecutionContext& context);
// Does the work of FusedLevelCuda for each level. No level may read what another writes. Two or
// more levels share launches if their bitmaps take few enough bricks.
absl::Status FusedLevelsCuda(absl::Span<const ExpansionLevelCuda> levels,
                             const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_EXPANSION_LEVEL_CUDA_H_
