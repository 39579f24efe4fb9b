// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_
#define VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds the dataflow `direct`: each output channel of an output row is one dot product over the row
// of an offset table. It runs on the CPU.
absl::Status RegisterDirect(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterDirectCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_
