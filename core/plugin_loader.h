// SPDX-License-Identifier: Apache-2.0
// Plugins from shared libraries.
#ifndef VOXCONV_CORE_PLUGIN_LOADER_H_
#define VOXCONV_CORE_PLUGIN_LOADER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Names the files and directories that LoadPluginsFromEnvironment reads, separated by colons.
inline constexpr char kPluginPathVariable[] = "VOXCONV_PLUGIN_PATH";

// The build stamp of this program. A plugin's build stamp must be equal to it.
absl::string_view HostBuildStamp();

// Loads the shared library `path` and registers its plugins. After an error the registry is as it
// was before. The library stays loaded until the process ends, also after an error, because its
// static objects and what it registered may point into it.
//
// The message names the file and is one line:
//   kNotFound            there is no such file
//   kInvalidArgument     it is a directory, it is not a shared library, it is cut short, it lacks a
//                        symbol that it needs, it lacks voxconv_plugin_info, or it registers
//                        nothing
//   kFailedPrecondition  it was built for another plugin ABI, with another build stamp, or for
//                        vectors that this processor lacks
//   kInternal            a function of the library throws, or ends the process: the library is
//                        loaded in a child process first
//   otherwise            the status of its register function, such as kAlreadyExists for a name
//   that
//                        is taken in the registry
//
// The executable must export the symbols of core and backends (CMake: voxconv_enable_plugins). No
// other thread may use `registry` meanwhile.
absl::Status LoadPlugin(const std::string& path, Registry& registry);

// Calls LoadPlugin for each file of `paths`, which are files and directories separated by colons.
// Empty parts are skipped. A directory stands for all *.so files in it, sorted by name. A directory
// without one is refused. Stops at the first error; plugins that were loaded before stay
// registered.
absl::Status LoadPlugins(absl::string_view paths, Registry& registry);

// LoadPlugins with the value of the variable kPluginPathVariable. Loads nothing if it is not set.
absl::Status LoadPluginsFromEnvironment(Registry& registry);

// A library that this process has loaded, and what it registered.
struct LoadedPlugin {
  std::string name;          // as VOXCONV_PLUGIN gives it
  std::string path;          // absolute
  std::string hash;          // HashFile of the library. What it links to in turn is not in it.
  std::string compiled_for;  // "AVX2": the vectors that its compiler could use
  std::vector<std::string> mappings, dataflows, output_coords;  // the names of its plugins
};

// The libraries that LoadPlugin has loaded without an error, each once, in that order. Results are
// known by their hashes: a plugin that is built anew is another one.
std::vector<LoadedPlugin> LoadedPlugins();

// The library that registered the mapping or dataflow `spec`, which may have options. Null for a
// built-in one.
std::optional<LoadedPlugin> LibraryOf(absl::string_view spec);

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_LOADER_H_
