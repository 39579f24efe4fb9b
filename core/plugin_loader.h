// Plugins from shared libraries.
#ifndef VOXCONV_CORE_PLUGIN_LOADER_H_
#define VOXCONV_CORE_PLUGIN_LOADER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/registry.h"

namespace voxconv {

// Names the files and directories that LoadPluginsFromEnvironment reads, separated by colons.
inline constexpr char kPluginPathVariable[] = "VOXCONV_PLUGIN_PATH";

// What a plugin's build stamp must be equal to.
absl::string_view HostBuildStamp();

// Loads the shared library `path` and registers its plugins. All or nothing: on an error the
// registry is as it was. The library stays loaded until the process ends, also after an error,
// because its static objects and whatever it registered may point into it.
//
// The message names the file and is one line:
//   kNotFound            there is no such file
//   kInvalidArgument     it is a directory or no shared library, lacks a symbol it needs, lacks
//                        voxconv_plugin_info, or registers nothing
//   kFailedPrecondition  it was built for another plugin ABI or with another build stamp
//   kInternal            a function of it throws
//   otherwise            the status of its register function: kAlreadyExists for a name that is
//                        taken in the registry
//
// The executable must export the symbols of core and backends (CMake: voxconv_enable_plugins).
// Not thread-safe with regard to `registry`.
absl::Status LoadPlugin(const std::string& path, Registry& registry);

// `paths`: files and directories separated by colons; empty parts are skipped. Of a directory,
// every *.so in it is loaded, by name; a directory without one is refused. Stops at the first
// error; what was loaded before stays registered.
absl::Status LoadPlugins(absl::string_view paths, Registry& registry);

// LoadPlugins of the variable's value; nothing where it is not set.
absl::Status LoadPluginsFromEnvironment(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_LOADER_H_
