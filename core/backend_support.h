// SPDX-License-Identifier: Apache-2.0
// Refusals that several dataflows share, so that all use the same words.
#ifndef VOXCONV_CORE_BACKEND_SUPPORT_H_
#define VOXCONV_CORE_BACKEND_SUPPORT_H_

#include "absl/strings/string_view.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

// For DoCapability of the dataflow `name`. Supports a shape only if all its tensors are f32 and its
// products are computed in f32.
Support F32Only(absl::string_view name, const ConvShape& shape);
// Supports a shape only if all its tensors have the same dtype, its precision is stored as that
// dtype (StorageOf), and its sums are f32.
Support UniformTypes(absl::string_view name, const ConvShape& shape);

}  // namespace voxconv

#endif  // VOXCONV_CORE_BACKEND_SUPPORT_H_
