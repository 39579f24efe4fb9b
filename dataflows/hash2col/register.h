// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_HASH2COL_REGISTER_H_
#define VOXCONV_DATAFLOWS_HASH2COL_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds the dataflow "hash2col" (H-CNN). It runs on the CPU.
absl::Status RegisterHash2col(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterHash2colCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_REGISTER_H_
