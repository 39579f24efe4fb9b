// The plugins compiled into this program; defined in a file that CMake generates.
#ifndef VOXCONV_CLI_BUILTIN_PLUGINS_H_
#define VOXCONV_CLI_BUILTIN_PLUGINS_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

absl::Status RegisterBuiltinPlugins(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_CLI_BUILTIN_PLUGINS_H_
