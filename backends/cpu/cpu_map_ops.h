// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_

#include <memory>

#include "voxconv/core/map_ops.h"

namespace voxconv {

// See core/map_ops.h. Stateless. The contexts that it is called with must be of a CpuBackend. Runs
// on the backend's threads. Transposed tables have no masks.
std::unique_ptr<MapOps> MakeCpuMapOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_
