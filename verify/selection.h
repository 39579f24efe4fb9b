// SPDX-License-Identifier: Apache-2.0
// Which plugins' cases the verify matrix runs, as users write it.
#ifndef VOXCONV_VERIFY_SELECTION_H_
#define VOXCONV_VERIFY_SELECTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "voxconv/core/registry.h"

namespace voxconv::verify {

// `text` as Selection::mapping and Selection::dataflow take it. "" and a name without a colon stay
// as they are. A spec becomes canonical; that of the default variant keeps its colon. Errors of
// PluginFamily::Canonical and Create; kInvalidArgument for a spec that is none of the variants,
// which the message lists.
template <typename Plugin>
absl::StatusOr<std::string> SelectPlugin(const std::string& text,
                                         const PluginFamily<Plugin>& family, BackendKind backend);

extern template absl::StatusOr<std::string> SelectPlugin(const std::string&,
                                                         const PluginFamily<Mapping>&, BackendKind);
extern template absl::StatusOr<std::string> SelectPlugin(const std::string&,
                                                         const PluginFamily<Dataflow>&,
                                                         BackendKind);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_SELECTION_H_
