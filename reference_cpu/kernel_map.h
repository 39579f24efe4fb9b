// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_KERNEL_MAP_H_
#define VOXCONV_REFERENCE_CPU_KERNEL_MAP_H_

#include <cstdint>
#include <vector>

#include "voxconv/reference_cpu/geometry.h"

namespace voxconv::reference {

// Which input row meets which output row under which kernel offset. Pair i
// belongs to offset k if offset_ptr[k] <= i < offset_ptr[k + 1]. The canonical
// order is by offset, then by ascending output row.
struct KernelMap {
  int num_offsets = 0;
  std::vector<int64_t> offset_ptr;  // [num_offsets + 1]
  std::vector<int32_t> in;          // [pairs], rows of the inputs
  std::vector<int32_t> out;         // [pairs], rows of the outputs

  friend bool operator==(const KernelMap&, const KernelMap&) = default;
};

// With input p, output q, kernel offset δ and input tensor stride t:
//   kSubmanifold and kStrided kQuantize   p = q + δ·t
//   kStrided kDilate                      p = q - P·t + δ·t
//   kTransposed                           q = p + δ·t/s
//   kInverse      the pairs of the strided layer (fine to coarse), swapped
// Takes O(K·N_out·log N_in) time. Throws std::invalid_argument for a bad
// geometry, duplicates, or coordinates off their tensor's lattice.
KernelMap BuildKernelMap(const std::vector<Coord>& inputs, const std::vector<Coord>& outputs,
                         const Geometry& geometry);

// The number of terms in the longest sum of a convolution: the most pairs that
// an output has, times C_in.
int64_t ReductionLength(const KernelMap& map, int64_t num_outputs, int64_t c_in);

// Throws std::invalid_argument unless `map` is well formed and its rows lie in
// [0, num_inputs) and [0, num_outputs).
void CheckKernelMap(const KernelMap& map, int64_t num_inputs, int64_t num_outputs);

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_KERNEL_MAP_H_
