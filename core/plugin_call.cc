// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/plugin_call.h"

namespace voxconv {
namespace {

thread_local PluginCall current_call;

}  // namespace

PluginCall CurrentPluginCall() { return current_call; }

PluginCallScope::PluginCallScope(const std::string& label, const char* method)
    : before_(current_call) {
  current_call = {&label, method};
}

PluginCallScope::~PluginCallScope() { current_call = before_; }

absl::Status StatusOfCall(const NamedPlugin& plugin, const char* method,
                          const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(plugin.label(), ": ", method, ": ", status.message()));
}

}  // namespace voxconv
