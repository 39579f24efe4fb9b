// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/selection.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::verify {

template <typename Plugin>
absl::StatusOr<std::string> SelectPlugin(const std::string& text,
                                         const PluginFamily<Plugin>& family, BackendKind backend) {
  if (text.empty()) return text;
  VOXCONV_ASSIGN_OR_RETURN(const std::string spec, family.Canonical(text));
  const std::vector<std::string> variants = family.Variants(backend);
  if (text.find(':') == std::string::npos) return text;
  if (std::find(variants.begin(), variants.end(), spec) != variants.end()) {
    // The default variant alone is written with a colon, too.
    return spec.find(':') == std::string::npos ? absl::StrCat(spec, ":") : spec;
  }
  VOXCONV_RETURN_IF_ERROR(family.Create(text, backend).status());  // the factory's own words
  return absl::InvalidArgumentError(absl::StrCat(
      family.family(), " '", spec, "' is none of the variants that verify runs; these are ",
      absl::StrJoin(variants, " ")));
}

template absl::StatusOr<std::string> SelectPlugin(const std::string&, const PluginFamily<Mapping>&,
                                                  BackendKind);
template absl::StatusOr<std::string> SelectPlugin(const std::string&, const PluginFamily<Dataflow>&,
                                                  BackendKind);

}  // namespace voxconv::verify
