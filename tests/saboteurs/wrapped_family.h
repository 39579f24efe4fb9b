// SPDX-License-Identifier: Apache-2.0
// How wrapped plugins get into a registry.
#ifndef VOXCONV_TESTS_SABOTEURS_WRAPPED_FAMILY_H_
#define VOXCONV_TESTS_SABOTEURS_WRAPPED_FAMILY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/registry.h"

namespace voxconv::testing {

// Registers `name`, implemented for each kind of backend for which `right` makes `inner`.
// `wrap(options, plugin, kind)` makes the wrapped plugin of the right one. `right` must outlive
// `family`.
template <typename Plugin, typename Wrap>
absl::Status RegisterWrappedIn(PluginFamily<Plugin>& family, const PluginFamily<Plugin>& right,
                               const std::string& name, const std::string& inner,
                               const Wrap& wrap) {
  VOXCONV_RETURN_IF_ERROR(family.Describe({.name = name, .summary = "for tests"}));
  for (const BackendKind kind : {BackendKind::kCpu, BackendKind::kCuda}) {
    if (!right.Create(inner, kind).ok()) continue;
    VOXCONV_RETURN_IF_ERROR(
        family.Implement(name, kind,
                         [&right, inner, kind,
                          wrap](Options options) -> absl::StatusOr<std::unique_ptr<const Plugin>> {
                           VOXCONV_ASSIGN_OR_RETURN(auto plugin, right.Create(inner, kind));
                           return wrap(std::move(options), std::move(plugin), kind);
                         }));
  }
  return absl::OkStatus();
}

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_WRAPPED_FAMILY_H_
