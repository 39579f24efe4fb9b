// SPDX-License-Identifier: Apache-2.0
// The plugins compiled into this program, and those that it loads.
#ifndef VOXCONV_BUILTIN_PLUGINS_H_
#define VOXCONV_BUILTIN_PLUGINS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Registers every built-in plugin. Defined in a file that CMake generates.
absl::Status RegisterBuiltinPlugins(Registry& registry);

// Registers the built-in plugins, then the plugins of the shared libraries `paths`, then those of
// VOXCONV_PLUGIN_PATH. Stops at the first error. Errors of LoadPlugins (core/plugin_loader.h).
absl::Status RegisterAllPlugins(const std::vector<std::string>& paths, Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_BUILTIN_PLUGINS_H_
