// What every plugin says of itself.
#ifndef VOXCONV_CORE_PLUGIN_H_
#define VOXCONV_CORE_PLUGIN_H_

#include <string>
#include <utility>
#include <vector>

#include "core/options.h"

namespace voxconv {

struct PluginDescription {
  std::string name;     // lower_snake_case, unique in its family
  std::string summary;  // one line
  std::string source;   // the paper or engine the idea is from
  OptionSchema options;
  // Option strings that `verify` and the contract suites run, beside the product of all enum and
  // bool options: those that reach further code paths, such as small blocks.
  std::vector<std::string> extra_variants;
};

// Whether something runs, and if not, why: one clause without a full stop.
struct Support {
  bool ok = true;
  std::string reason;

  static Support Yes() { return {}; }
  static Support No(std::string reason) { return {false, std::move(reason)}; }
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_PLUGIN_H_
