// SPDX-License-Identifier: Apache-2.0
// How a plugin describes itself.
#ifndef VOXCONV_CORE_PLUGIN_H_
#define VOXCONV_CORE_PLUGIN_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin_call.h"

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
  std::string reason;   // if it is not: one clause without a full stop
  bool failed = false;  // the plugin threw when it was asked; `reason` is the error

  static Support Yes() { return {}; }
  static Support No(std::string reason) { return {false, std::move(reason)}; }
  static Support Failed(std::string error) { return {false, std::move(error), true}; }
  // OK if it is supported. kUnimplemented with the reason if not, after "`who`: " if that is given.
  // kInternal if the plugin failed.
  absl::Status ToStatus(absl::string_view who = "") const {
    if (ok) return absl::OkStatus();
    if (failed) return absl::InternalError(reason);
    return absl::UnimplementedError(who.empty() ? reason : absl::StrCat(who, ": ", reason));
  }
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_H_
