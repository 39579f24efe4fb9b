// (family, name, backend) -> factory.
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
#include "core/dataflow.h"
#include "core/mapping.h"
#include "core/plugin.h"

namespace voxconv {

// One family of plugins. Listing is by name, whatever the order of registration.
template <typename Plugin>
class PluginFamily {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<const Plugin>>(Options)>;
  struct Entry {
    PluginDescription description;
    std::map<BackendKind, Factory> factories;  // what makes it on each kind of backend
  };

  explicit PluginFamily(std::string family) : family_(std::move(family)) {}

  // Registers a plugin that nothing makes yet. kAlreadyExists for a name that is taken.
  // kInvalidArgument for a name that is no lower_snake_case word or is "reference", which is
  // verify's own, for options that OptionSchema::Check refuses, and for a grid of an option that
  // there is not.
  absl::Status Describe(PluginDescription description);
  // Adds what makes the plugin `name` on `backend`. kNotFound for a plugin that is not described,
  // kAlreadyExists where it has a factory for that backend, kInvalidArgument for no factory.
  absl::Status Implement(absl::string_view name, BackendKind backend, Factory create);
  // Both: for plugins of one backend.
  absl::Status Register(PluginDescription description, BackendKind backend, Factory create);
  // Every plugin that is implemented for `backend` by now, and not for `other`, is made on `other`
  // by the same factory: for a backend that runs what was written for another one.
  void Share(BackendKind backend, BackendKind other);

  // Makes the plugin for `backend`. `spec` is "name" or "name:key=value,...". An unknown name is
  // refused with the list of names. kUnimplemented where the plugin has no implementation for the
  // backend. kInternal where the factory throws or returns null. Never null.
  absl::StatusOr<std::unique_ptr<const Plugin>> Create(absl::string_view spec,
                                                       BackendKind backend) const;
  // The canonical spec: name, and the options that differ from their defaults.
  absl::StatusOr<std::string> Canonical(absl::string_view spec) const;
  // The spec with the values of all options. Neither asks whether a backend has the plugin.
  absl::StatusOr<std::string> InFull(absl::string_view spec) const;

  const std::string& family() const { return family_; }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // Specs of all variants that suites run: the product of every plugin's enum and bool options,
  // then its extra_variants. Those that the factory for `backend` refuses are left out, and so are
  // plugins without one. Deterministic.
  std::vector<std::string> Variants(BackendKind backend) const;
  // The plugins without a variant on `backend`, by name, with what Create says to the default
  // options.
  std::vector<std::pair<std::string, absl::Status>> Unusable(BackendKind backend) const;
  // Specs of the product of every plugin's enum options alone: its ways of working, once each.
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
