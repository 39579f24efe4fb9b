// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds the dataflow `fetch_on_demand`. It gathers, multiplies and scatters straight from the pair
// list, and fuses the kernel offsets in one of PCEngine's three ways. It runs on the CPU.
absl::Status RegisterFetchOnDemand(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterFetchOnDemandCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_
