// SPDX-License-Identifier: Apache-2.0
// How a plugin describes itself.
#ifndef VOXCONV_CORE_PLUGIN_H_
#define VOXCONV_CORE_PLUGIN_H_

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/options.h"

namespace voxconv {

// One option, and the values of it to try. In a dataflow's grid, the value "divisors(c_in)" stands
// for all divisors of a layer's input channels, and "divisors(c_out)" for those of its output
// channels.
struct OptionAxis {
  std::string option;
  std::vector<std::string> values;
};

// Option values that `tune` tries for a plugin that was fast with other values: the product of the
// axes. Options without an axis keep their values.
struct OptionGrid {
  OptionAxis where;  // the grid applies only if this option has one of these values; may be empty
  std::vector<OptionAxis> axes;
};

struct PluginDescription {
  std::string name;          // lower_snake_case, unique in its family
  std::string summary = {};  // one line
  std::string source = {};   // the paper or engine the idea is from
  OptionSchema options = {};
  // Option strings that `verify` and the contract suites run besides the product of all enum and
  // bool options. They should reach the code paths that the product does not reach.
  std::vector<std::string> extra_variants = {};
  // What `tune` searches after the product of the enum options, one grid after the other.
  std::vector<OptionGrid> grids = {};
};

// Whether something is supported.
struct Support {
  bool ok = true;
  std::string reason;  // if it is not: one clause without a full stop

  static Support Yes() { return {}; }
  static Support No(std::string reason) { return {false, std::move(reason)}; }
};

// Returns what `call` returns. If `call` throws, returns kInternal with the exception's text.
// Plugins must not throw, but one that does must not end the program.
template <typename Call>
std::invoke_result_t<Call> WithoutExceptions(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception: ", error.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

// Returns `made`, which a plugin's method returned, unless it is OK and null. Then it returns
// kInternal. The message begins with `who`, such as "mapping: DoBuildIndex".
template <typename Pointer>
absl::StatusOr<Pointer> NonNull(absl::StatusOr<Pointer> made, absl::string_view who) {
  if (!made.ok() || *made != nullptr) return made;
  return absl::InternalError(absl::StrCat(who, " returned null"));
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_H_
