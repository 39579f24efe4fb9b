// What every plugin says of itself.
#ifndef VOXCONV_CORE_PLUGIN_H_
#define VOXCONV_CORE_PLUGIN_H_

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/options.h"

namespace voxconv {

// One option, and values of it to try. In a grid of a dataflow, "divisors(c_in)" and
// "divisors(c_out)" stand for the divisors of a layer's channels.
struct OptionAxis {
  std::string option;
  std::vector<std::string> values;
};

// Option values for a second look at a plugin that did well: the product of the axes. The other
// options stay as they were.
struct OptionGrid {
  OptionAxis where;  // only where the option has one of these values; may be empty
  std::vector<OptionAxis> axes;
};

struct PluginDescription {
  std::string name;          // lower_snake_case, unique in its family
  std::string summary = {};  // one line
  std::string source = {};   // the paper or engine the idea is from
  OptionSchema options = {};
  // Option strings that `verify` and the contract suites run, beside the product of all enum and
  // bool options: those that reach further code paths, such as small blocks.
  std::vector<std::string> extra_variants = {};
  // What `tune` searches beside the product of the enum options, one grid after the other.
  std::vector<OptionGrid> grids = {};
};

// Whether something runs, and if not, why: one clause without a full stop.
struct Support {
  bool ok = true;
  std::string reason;

  static Support Yes() { return {}; }
  static Support No(std::string reason) { return {false, std::move(reason)}; }
};

// What `call` returns; kInternal with what it throws instead: plugins must not, and one that does
// should not take the program with it.
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

// `made`, what a plugin's method returned, unless that is OK and null: then kInternal, and `who`
// ("mapping: BuildIndex") says in the message whose mistake it is.
template <typename Pointer>
absl::StatusOr<Pointer> NonNull(absl::StatusOr<Pointer> made, absl::string_view who) {
  if (!made.ok() || *made != nullptr) return made;
  return absl::InternalError(absl::StrCat(who, " returned null"));
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_H_
