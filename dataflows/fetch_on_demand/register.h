#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds the dataflow `fetch_on_demand`: fused gather, multiply and scatter straight from the pair
// list, with PCEngine's three ways to fuse the kernel offsets. It runs on the CPU.
absl::Status RegisterFetchOnDemand(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterFetchOnDemandCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_REGISTER_H_
