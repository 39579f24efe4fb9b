// SPDX-License-Identifier: Apache-2.0
#include "voxconv/builtin/plugins.h"

#include "voxconv/core/plugin_loader.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::Status RegisterAllPlugins(const std::vector<std::string>& paths, Registry& registry) {
  VOXCONV_RETURN_IF_ERROR(RegisterBuiltinPlugins(registry));
  for (const std::string& path : paths) VOXCONV_RETURN_IF_ERROR(LoadPlugin(path, registry));
  return LoadPluginsFromEnvironment(registry);
}

}  // namespace voxconv
