// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/plugin_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/file_hash.h"
#include "voxconv/core/library_probe.h"
#include "voxconv/core/plugin_api.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;

// For constructors and register functions, on a busy machine.
constexpr std::chrono::seconds kLoadLimit(60);

using PluginInfoFunction = const VoxconvPluginInfo* (*)();

absl::Status Refuse(absl::StatusCode code, const fs::path& path, absl::string_view reason) {
  return absl::Status(code, absl::StrCat("plugin '", path.string(), "': ", reason));
}

// "file: why" of the last dl* call; the loader repeats the file name, which Refuse gives already.
std::string LoaderMessage(const fs::path& path) {
  const char* message = dlerror();
  std::string text = message == nullptr ? "unknown error of the dynamic loader" : message;
  const std::string prefix = absl::StrCat(path.string(), ": ");
  if (text.rfind(prefix, 0) == 0) text.erase(0, prefix.size());
  return text;
}

size_t NumPlugins(const Registry& registry) {
  return registry.mappings().entries().size() + registry.dataflows().entries().size() +
         registry.output_coords().entries().size();
}

// Whether code for this VOXCONV_CODE_TARGET runs here.
bool ProcessorHas(absl::string_view target) {
#if defined(__x86_64__)
  if (target == "AVX-512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  }
  if (target == "AVX2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (target == "AVX") return __builtin_cpu_supports("avx");
#endif
  return target == VOXCONV_CODE_TARGET || target == "SSE2" || target == "NEON" ||
         target == "scalar";
}

absl::Status CheckInfo(const VoxconvPluginInfo* info, const fs::path& path) {
  if (info == nullptr) {
    return Refuse(absl::StatusCode::kInvalidArgument, path, "voxconv_plugin_info() returns null");
  }
  if (info->abi_version != VOXCONV_PLUGIN_ABI_VERSION) {
    return Refuse(absl::StatusCode::kFailedPrecondition, path,
                  absl::StrCat("built for plugin ABI ", info->abi_version, ", this program has ",
                               VOXCONV_PLUGIN_ABI_VERSION, "; rebuild the plugin"));
  }
  if (info->build_stamp == nullptr || info->name == nullptr || info->register_plugins == nullptr ||
      info->code_target == nullptr || info->compiled_for == nullptr) {
    return Refuse(absl::StatusCode::kInvalidArgument, path,
                  "voxconv_plugin_info() lacks the build stamp, name, register function or target");
  }
  if (info->build_stamp != HostBuildStamp()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, path,
                  absl::StrCat("built with (", info->build_stamp, "), this program with (",
                               HostBuildStamp(), "); rebuild the plugin"));
  }
  if (!ProcessorHas(info->code_target)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, path,
                  absl::StrCat("compiled for ", info->code_target,
                               ", which this processor lacks; rebuild the plugin here, or with "
                               "VOXCONV_PLUGIN_ARCHITECTURE=OFF"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<fs::path>> LibrariesIn(const fs::path& directory) {
  std::vector<fs::path> libraries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".so") libraries.push_back(it->path());
  }
  if (error) return Refuse(absl::StatusCode::kInvalidArgument, directory, error.message());
  if (libraries.empty()) {
    return Refuse(absl::StatusCode::kNotFound, directory, "the directory holds no *.so file");
  }
  std::sort(libraries.begin(), libraries.end());
  return libraries;
}

// Names of plugins that `after` has and `before` has not.
template <typename Plugin>
std::vector<std::string> NewNames(const PluginFamily<Plugin>& before,
                                  const PluginFamily<Plugin>& after) {
  std::vector<std::string> names;
  for (const auto& entry : after.entries()) {
    if (!before.entries().contains(entry.first)) names.push_back(entry.first);
  }
  return names;
}

// Libraries stay loaded until the process ends, and so do these.
struct Libraries {
  std::mutex mutex;
  std::vector<std::pair<void*, LoadedPlugin>> loaded;  // by the handle of the dynamic loader
};

Libraries& AllLibraries() {
  static auto* libraries = new Libraries;
  return *libraries;
}

// A library that is loaded again, into another registry, stays what it was: the loader does not
// read its file a second time.
void Note(void* handle, LoadedPlugin plugin) {
  Libraries& libraries = AllLibraries();
  const std::lock_guard lock(libraries.mutex);
  for (const auto& known : libraries.loaded) {
    if (known.first == handle) return;
  }
  libraries.loaded.emplace_back(handle, std::move(plugin));
}

// Loads the library and registers its plugins. Sets `noted`, and the handle of the loader.
absl::Status LoadInto(const fs::path& file, const std::string& path, Registry& registry,
                      LoadedPlugin& noted, void*& library) {
  library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Refuse(absl::StatusCode::kInvalidArgument, path, LoaderMessage(file));
  }
  auto info_function = reinterpret_cast<PluginInfoFunction>(dlsym(library, "voxconv_plugin_info"));
  if (info_function == nullptr) {
    return Refuse(absl::StatusCode::kInvalidArgument, path,
                  "does not export voxconv_plugin_info; add VOXCONV_PLUGIN(name, function) at "
                  "global scope or in a named namespace");
  }
  const absl::StatusOr<const VoxconvPluginInfo*> answer = WithoutExceptions(
      [&]() -> absl::StatusOr<const VoxconvPluginInfo*> { return info_function(); });
  if (!answer.ok()) {
    return Refuse(answer.status().code(), path,
                  absl::StrCat("voxconv_plugin_info(): ", answer.status().message()));
  }
  const VoxconvPluginInfo* info = *answer;
  VOXCONV_RETURN_IF_ERROR(CheckInfo(info, path));

  Registry extended = registry;
  const absl::Status status =
      WithoutExceptions([&]() -> absl::Status { return info->register_plugins(extended); });
  if (!status.ok()) {
    return Refuse(status.code(), path, absl::StrCat(info->name, ": ", status.message()));
  }
  if (NumPlugins(extended) == NumPlugins(registry)) {
    return Refuse(absl::StatusCode::kInvalidArgument, path,
                  absl::StrCat(info->name, ": its register function registers nothing"));
  }
  noted.name = info->name;
  noted.compiled_for = info->compiled_for;
  noted.mappings = NewNames(registry.mappings(), extended.mappings());
  noted.dataflows = NewNames(registry.dataflows(), extended.dataflows());
  noted.output_coords = NewNames(registry.output_coords(), extended.output_coords());
  registry = std::move(extended);
  return absl::OkStatus();
}

}  // namespace

std::vector<LoadedPlugin> LoadedPlugins() {
  Libraries& libraries = AllLibraries();
  const std::lock_guard lock(libraries.mutex);
  std::vector<LoadedPlugin> plugins;
  for (const auto& known : libraries.loaded) plugins.push_back(known.second);
  return plugins;
}

std::optional<LoadedPlugin> LibraryOf(absl::string_view spec) {
  const absl::string_view name = spec.substr(0, spec.find(':'));
  for (LoadedPlugin& plugin : LoadedPlugins()) {
    for (const auto* names : {&plugin.mappings, &plugin.dataflows, &plugin.output_coords}) {
      if (std::find(names->begin(), names->end(), name) != names->end()) return std::move(plugin);
    }
  }
  return std::nullopt;
}

absl::string_view HostBuildStamp() { return VOXCONV_BUILD_STAMP; }

absl::Status LoadPlugin(const std::string& path, Registry& registry) {
  // Absolute, because dlopen looks up a name without a slash in the system's library path.
  std::error_code error;
  const fs::path file = fs::absolute(path, error);
  if (path.empty() || error || !fs::exists(file, error)) {
    return Refuse(absl::StatusCode::kNotFound, path, "there is no such file");
  }
  if (fs::is_directory(file, error)) {
    return Refuse(absl::StatusCode::kInvalidArgument, path,
                  "a directory; name a shared library (*.so)");
  }
  // To open a pipe would wait for another program.
  if (!fs::is_regular_file(file, error)) {
    return Refuse(absl::StatusCode::kInvalidArgument, path,
                  "not a regular file; name a shared library (*.so)");
  }
  if (const absl::Status whole = CheckWholeElf(file.string()); !whole.ok()) {
    return Refuse(whole.code(), path, whole.message());
  }
  // Before it is loaded: a file that is replaced in between must not pass for the one that runs.
  const absl::StatusOr<std::string> hash = HashFile(file.string());
  if (!hash.ok()) return Refuse(hash.status().code(), path, hash.status().message());
  LoadedPlugin noted{.path = file.string(), .hash = *hash};
  void* library = nullptr;
  // A constructor that aborts, and whatever else ends a process that loads the library, is met in a
  // child first.
  const absl::Status tried = TryInChild(
      "loading it",
      [&] {
        Registry copy = registry;
        LoadInto(file, path, copy, noted, library).IgnoreError();
      },
      kLoadLimit);
  if (!tried.ok()) return Refuse(tried.code(), path, tried.message());
  VOXCONV_RETURN_IF_ERROR(LoadInto(file, path, registry, noted, library));
  Note(library, std::move(noted));
  return absl::OkStatus();
}

absl::Status LoadPlugins(absl::string_view paths, Registry& registry) {
  for (absl::string_view part : absl::StrSplit(paths, ':', absl::SkipEmpty())) {
    const fs::path path{std::string(part)};
    std::error_code error;
    std::vector<fs::path> libraries = {path};
    if (fs::is_directory(path, error)) {
      VOXCONV_ASSIGN_OR_RETURN(libraries, LibrariesIn(path));
    }
    for (const fs::path& library : libraries) {
      VOXCONV_RETURN_IF_ERROR(LoadPlugin(library.string(), registry));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadPluginsFromEnvironment(Registry& registry) {
  const char* paths = std::getenv(kPluginPathVariable);
  if (paths == nullptr) return absl::OkStatus();
  const absl::Status status = LoadPlugins(paths, registry);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(kPluginPathVariable, ": ", status.message()));
}

}  // namespace voxconv
