// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/checked_maps.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "voxconv/core/map_check.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::measure {
namespace {

class CheckedMapping final : public Mapping {
 public:
  CheckedMapping(std::string name, std::unique_ptr<const Mapping> mapping)
      : name_(std::move(name)), mapping_(std::move(mapping)) {
    mapping_->SetLabel(absl::StrCat("mapping ", name_));
  }

  const Options& options() const override { return mapping_->options(); }
  Support DoSupports(const ConvGeometry& geometry) const override {
    return mapping_->Supports(geometry);
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return mapping_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, mapping_->Query(index, problem, context));
    const absl::Status held = CheckMapOnAllRows(map, problem, context);
    if (!held.ok()) return StatusAt(absl::StrCat("mapping '", name_, "'"), held);
    return map;
  }

 private:
  std::string name_;
  std::unique_ptr<const Mapping> mapping_;
};

PluginFamily<Mapping>::Factory Checked(const std::string& name,
                                       const PluginFamily<Mapping>::Factory& factory) {
  return [name, factory](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
    VOXCONV_ASSIGN_OR_RETURN(auto mapping, factory(std::move(options)));
    if (mapping == nullptr) return mapping;  // the family refuses it by name
    return std::make_unique<CheckedMapping>(name, std::move(mapping));
  };
}

}  // namespace

absl::StatusOr<Registry> WithCheckedMaps(const Registry& registry,
                                         const std::function<bool(absl::string_view)>& which) {
  Registry checked = registry;
  PluginFamily<Mapping>& mappings = checked.mappings();
  mappings = PluginFamily<Mapping>(registry.mappings().family());
  for (const auto& [name, entry] : registry.mappings().entries()) {
    VOXCONV_RETURN_IF_ERROR(mappings.Describe(entry.description));
    for (const auto& [backend, factory] : entry.factories) {
      VOXCONV_RETURN_IF_ERROR(
          mappings.Implement(name, backend, which(name) ? Checked(name, factory) : factory));
    }
  }
  return checked;
}

bool IsLoadedMapping(absl::string_view spec) {
  const std::string name(spec.substr(0, spec.find(':')));
  const std::vector<LoadedPlugin> plugins = LoadedPlugins();
  return std::any_of(plugins.begin(), plugins.end(), [&](const LoadedPlugin& plugin) {
    return std::find(plugin.mappings.begin(), plugin.mappings.end(), name) != plugin.mappings.end();
  });
}

bool HasLoadedMapping(const Configuration& configuration) {
  bool any = IsLoadedMapping(configuration.choice.mapping);
  for (const LayerOverride& layer : configuration.layers) {
    any = any || IsLoadedMapping(layer.choice.mapping);
  }
  for (const PlannedLayer& layer : configuration.plan) {
    any = any || IsLoadedMapping(layer.choice.mapping);
  }
  return any;
}

}  // namespace voxconv::measure
