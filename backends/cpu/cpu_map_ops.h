#ifndef VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_

#include <memory>

#include "core/map_ops.h"

namespace voxconv {

std::unique_ptr<MapOps> MakeCpuMapOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_MAP_OPS_H_
