// SPDX-License-Identifier: Apache-2.0
// The boundary between the framework and the code of a plugin. The public methods of the plugin
// families call the Do... methods through it. Hence every command treats a plugin that throws or
// returns null alike: as an error that names the plugin and the method.
#ifndef VOXCONV_CORE_PLUGIN_CALL_H_
#define VOXCONV_CORE_PLUGIN_CALL_H_

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// The base class of all plugins: what messages call an instance.
class NamedPlugin {
 public:
  // The family and the name, such as "mapping hash". The family alone for an instance that no
  // PluginFamily made.
  const std::string& label() const { return label_; }
  // PluginFamily calls this before anyone else has the instance. A factory makes const instances,
  // and does not know the name.
  void SetLabel(std::string label) const { label_ = std::move(label); }

 protected:
  explicit NamedPlugin(std::string family) : label_(std::move(family)) {}
  ~NamedPlugin() = default;

 private:
  mutable std::string label_;
};

// The plugin method that a thread is in. Serves messages about a plugin that ends the program.
struct PluginCall {
  const std::string* label = nullptr;  // null: the thread is in no plugin
  const char* method = nullptr;
};
// The innermost method that the calling thread is in.
PluginCall CurrentPluginCall();

// Marks the calling thread as in `call` as long as this object lives.
class PluginCallScope {
 public:
  // Both must outlive this object.
  PluginCallScope(const std::string& label, const char* method);
  ~PluginCallScope();
  PluginCallScope(const PluginCallScope&) = delete;
  PluginCallScope& operator=(const PluginCallScope&) = delete;

 private:
  PluginCall before_;
};

// Returns what `call` returns. If `call` throws, returns kInternal with the exception's text, or
// kResourceExhausted if the exception says that memory does not suffice. Plugins must not throw,
// but one that does must not end the program.
template <typename Call>
std::invoke_result_t<Call> WithoutExceptions(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("exception: out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception: ", error.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

// The error with the plugin and its method before its message.
absl::Status StatusOfCall(const NamedPlugin& plugin, const char* method,
                          const absl::Status& status);

// Returns what `call`, a call of the plugin's method, returns: an absl::Status or StatusOr. If it
// throws, the error names the plugin and the method.
template <typename Call>
std::invoke_result_t<Call> CallPlugin(const NamedPlugin& plugin, const char* method,
                                      const Call& call) {
  const PluginCallScope scope(plugin.label(), method);
  absl::Status thrown;
  try {
    return call();
  } catch (...) {
    thrown = WithoutExceptions([]() -> absl::Status { throw; });
  }
  return StatusOfCall(plugin, method, thrown);
}

// The same for a method that returns a StatusOr of a pointer. OK and null is an error, too.
template <typename Call>
std::invoke_result_t<Call> CallPluginForPointer(const NamedPlugin& plugin, const char* method,
                                                const Call& call) {
  std::invoke_result_t<Call> made = CallPlugin(plugin, method, call);
  if (!made.ok() || *made != nullptr) return made;
  return StatusOfCall(plugin, method, absl::InternalError("returned null"));
}

// Returns `made`, which a plugin's factory returned, unless it is OK and null. Then it returns
// kInternal. The message begins with `who`.
template <typename Pointer>
absl::StatusOr<Pointer> NonNull(absl::StatusOr<Pointer> made, absl::string_view who) {
  if (!made.ok() || *made != nullptr) return made;
  return absl::InternalError(absl::StrCat(who, " returned null"));
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_CALL_H_
