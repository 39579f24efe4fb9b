// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/plugin_call.h"

#include <deque>
#include <mutex>

namespace voxconv {
namespace {

// Who asks where a thread is when the program ends, asks late: plugins in static objects, and what
// a thread owns, are gone by then. Hence the name is copied into a string that is never freed.
std::string* NewLabel() {
  static auto* mutex = new std::mutex;
  static auto* labels = new std::deque<std::string>;
  const std::lock_guard lock(*mutex);
  return &labels->emplace_back();
}

thread_local PluginCall current_call;  // `label` is the plugin's own
thread_local std::string* current_label = nullptr;

void Enter(const PluginCall& call) {
  current_call = call;
  if (call.label == nullptr) return;
  if (current_label == nullptr) current_label = NewLabel();
  *current_label = *call.label;
}

}  // namespace

PluginCall CurrentPluginCall() {
  if (current_call.label == nullptr) return {};
  return {current_label, current_call.method};
}

PluginCallScope::PluginCallScope(const std::string& label, const char* method)
    : before_(current_call) {
  Enter({&label, method});
}

PluginCallScope::~PluginCallScope() { Enter(before_); }

absl::Status StatusOfCall(const NamedPlugin& plugin, const char* method,
                          const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(plugin.label(), ": ", method, ": ", status.message()));
}

}  // namespace voxconv
