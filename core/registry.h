// SPDX-License-Identifier: Apache-2.0
// Finds the factory of a plugin by family, name and backend.
#ifndef VOXCONV_CORE_REGISTRY_H_
#define VOXCONV_CORE_REGISTRY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

// One family of plugins, sorted by name. Not thread-safe while plugins are registered. Const
// methods may be called from any number of threads.
template <typename Plugin>
class PluginFamily {
 public:
  // Makes an instance with these options. It may refuse them. Must not throw or return null.
  using Factory = std::function<absl::StatusOr<std::unique_ptr<const Plugin>>(Options)>;
  struct Entry {
    PluginDescription description;
    std::map<BackendKind, Factory> factories;  // one for each kind of backend that it runs on
  };

  explicit PluginFamily(std::string family) : family_(std::move(family)) {}

  // Registers a plugin that has no factory yet. kAlreadyExists for a name that is taken.
  // kInvalidArgument for a name that is not a lower_snake_case word, for the name "reference",
  // which verify uses for its oracle, for options that OptionSchema::Check refuses, and for a grid
  // of an option that the plugin does not have.
  absl::Status Describe(PluginDescription description);
  // Adds the factory that makes the plugin `name` for `backend`. kNotFound for a plugin that is not
  // described. kAlreadyExists if the plugin has a factory for that backend. kInvalidArgument for an
  // empty factory.
  absl::Status Implement(absl::string_view name, BackendKind backend, Factory create);
  // Describe and Implement, for a plugin of one backend. An empty factory is refused first.
  absl::Status Register(PluginDescription description, BackendKind backend, Factory create);
  // For a backend that runs the code of another one. Gives each plugin that has a factory for
  // `backend` now, and none for `other`, the same factory for `other`.
  void Share(BackendKind backend, BackendKind other);

  // Makes the plugin for `backend`. The caller owns it. Never null. `spec` is "name" or
  // "name:key=value,...". kNotFound for an unknown name; the message lists the names.
  // kInvalidArgument for options that Options::Parse refuses. kUnimplemented if the plugin has no
  // factory for the backend. kInternal if the factory throws or returns null. Otherwise the
  // factory's error.
  absl::StatusOr<std::unique_ptr<const Plugin>> Create(absl::string_view spec,
                                                       BackendKind backend) const;
  // The canonical spec: the name, and the options that differ from their defaults. Does not ask
  // whether a backend has the plugin. Errors of Create for the name and the options.
  absl::StatusOr<std::string> Canonical(absl::string_view spec) const;
  // The same with the values of all options.
  absl::StatusOr<std::string> InFull(absl::string_view spec) const;

  const std::string& family() const { return family_; }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // Canonical specs of all variants that suites run on `backend`, in a fixed order. A plugin's
  // variants are the product of its enum and bool options, then its extra_variants. Variants that
  // the factory refuses are left out, and so are plugins without a factory for `backend`.
  std::vector<std::string> Variants(BackendKind backend) const;
  // Names of the plugins that have no variant on `backend`. Each comes with the error of Create for
  // its default options.
  std::vector<std::pair<std::string, absl::Status>> Unusable(BackendKind backend) const;
  // The same as Variants, with the product of the enum options alone.
  std::vector<std::string> EnumVariants(BackendKind backend) const;

 private:
  // Canonical, without what factories refuse and without repeats.
  std::vector<std::string> SpecsOf(
      BackendKind backend,
      const std::function<std::vector<std::string>(const PluginDescription&)>& option_texts) const;
  absl::StatusOr<std::pair<const Entry*, Options>> Resolve(absl::string_view spec) const;

  std::string family_;
  std::map<std::string, Entry, std::less<>> entries_;
};

extern template class PluginFamily<Mapping>;
extern template class PluginFamily<Dataflow>;
extern template class PluginFamily<OutputCoords>;

// The three families.
class Registry {
 public:
  PluginFamily<Mapping>& mappings() { return mappings_; }
  const PluginFamily<Mapping>& mappings() const { return mappings_; }
  PluginFamily<Dataflow>& dataflows() { return dataflows_; }
  const PluginFamily<Dataflow>& dataflows() const { return dataflows_; }
  PluginFamily<OutputCoords>& output_coords() { return output_coords_; }
  const PluginFamily<OutputCoords>& output_coords() const { return output_coords_; }

 private:
  PluginFamily<Mapping> mappings_{"mapping"};
  PluginFamily<Dataflow> dataflows_{"dataflow"};
  PluginFamily<OutputCoords> output_coords_{"output_coords"};
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_REGISTRY_H_
