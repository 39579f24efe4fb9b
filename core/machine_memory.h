// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CORE_MACHINE_MEMORY_H_
#define VOXCONV_CORE_MACHINE_MEMORY_H_

#include <unistd.h>

#include <cstdint>
#include <limits>

namespace voxconv {

// The bytes of the machine's memory. What needs more than this is refused before it is asked for:
// Linux grants it, and ends the program once it is used.
inline int64_t MachineMemory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages * page : std::numeric_limits<int64_t>::max();
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_MACHINE_MEMORY_H_
