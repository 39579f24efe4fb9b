// SPDX-License-Identifier: Apache-2.0
#include "plugins.h"

#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "engine.h"
#include "voxconv/core/plugin_loader.h"

namespace voxconv::python {
namespace {

nb::list OptionRecords(const OptionSchema& schema) {
  nb::list records;
  for (const OptionSpec& spec : schema.specs()) {
    nb::dict record;
    record["name"] = spec.name;
    record["type"] = ToString(spec.type);
    record["default"] = spec.default_value;
    record["allowed"] = spec.Allowed();
    record["help"] = spec.help;
    records.append(record);
  }
  return records;
}

template <typename Plugin>
void AppendFamily(const PluginFamily<Plugin>& family, nb::list& records) {
  for (const auto& [name, entry] : family.entries()) {
    nb::list backends;
    for (const auto& [kind, factory] : entry.factories) {
      backends.append(std::string(kind.name()));
    }
    nb::dict record;
    record["family"] = family.family();
    record["name"] = name;
    record["summary"] = entry.description.summary;
    record["source"] = entry.description.source;
    record["backends"] = backends;
    record["options"] = OptionRecords(entry.description.options);
    records.append(record);
  }
}

nb::list ListPlugins() {
  const std::shared_ptr<const Registry> plugins = Plugins();
  nb::list records;
  AppendFamily(plugins->mappings(), records);
  AppendFamily(plugins->dataflows(), records);
  AppendFamily(plugins->output_coords(), records);
  return records;
}

// Python loads modules so that other libraries do not see their symbols. A plugin needs those of
// core and the backends, which this module has.
void ShowSymbols() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&ShowSymbols), &info) == 0 ||
      dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) == nullptr) {
    ThrowStatus(absl::InternalError("load_plugin: the module's own library was not found"));
  }
}

// Refuses a spec that no plugin of the family has.
void CheckPlugin(const std::string& family, const std::string& spec) {
  const std::shared_ptr<const Registry> plugins = Plugins();
  ValueOf(family == plugins->mappings().family() ? plugins->mappings().Canonical(spec)
                                                 : plugins->dataflows().Canonical(spec));
}

void LoadPluginFile(nb::handle file) {
  const std::string path = ToPath("path", file);
  ShowSymbols();
  AddPlugins([&](Registry& registry) { return LoadPlugin(path, registry); });
}

}  // namespace

void DefinePlugins(nb::module_& module) {
  module.def("list_plugins", &ListPlugins,
             nb::sig("def list_plugins() -> list[dict[str, typing.Any]]"),
             R"(All plugins, as dicts for pandas.DataFrame.

Each has family ("mapping", "dataflow" or "output_coords"), name, summary, source, backends and
options; an option has name, type, default, allowed and help. A spec is a name, or a name with
options: "hash:variant=cuckoo".

>>> import voxconv
>>> "hash" in [p["name"] for p in voxconv.list_plugins() if p["family"] == "mapping"]
True
)");
  module.def("_check_plugin", &CheckPlugin, nb::arg("family"), nb::arg("spec"),
             nb::sig("def _check_plugin(family: str, spec: str) -> None"),
             "ValueError for a spec of \"mapping\" or \"dataflow\" that is unknown.");
  module.def("load_plugin", &LoadPluginFile, nb::arg("path").none(),
             nb::sig("def load_plugin(path: str | os.PathLike[str]) -> None"),
             R"(Loads a shared library with plugins, as the option --plugin of the program does.

It must have been built with this version and its compiler. The library stays loaded. The symbols of
this module become visible to libraries that are loaded later.

Raises:
    ValueError: the file is missing, no plugin, of another build, or a name is taken.)");
}

}  // namespace voxconv::python
