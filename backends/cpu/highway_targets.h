// SPDX-License-Identifier: Apache-2.0
// The instruction sets that the CPU's matrix products are compiled for. To be included before
// hwy/foreach_target.h.
#ifndef VOXCONV_BACKENDS_CPU_HIGHWAY_TARGETS_H_
#define VOXCONV_BACKENDS_CPU_HIGHWAY_TARGETS_H_

// Scalable vectors cannot be members of the accumulators' arrays; SSSE3 and the AVX-512 subsets
// would only repeat the code of their neighbours.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_AVX3_DL)

#endif  // VOXCONV_BACKENDS_CPU_HIGHWAY_TARGETS_H_
