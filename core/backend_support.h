// What plugins refuse, in one wording for all.
#ifndef VOXCONV_CORE_BACKEND_SUPPORT_H_
#define VOXCONV_CORE_BACKEND_SUPPORT_H_

#include "absl/strings/string_view.h"
#include "core/dataflow.h"
#include "core/plugin.h"

namespace voxconv {

// For DoCapability of the dataflow `name`: f32 tensors and f32 products alone.
Support F32Only(absl::string_view name, const ConvShape& shape);
// Tensors of one dtype, products in a precision that is stored as that dtype, sums in f32.
Support UniformTypes(absl::string_view name, const ConvShape& shape);

}  // namespace voxconv

#endif  // VOXCONV_CORE_BACKEND_SUPPORT_H_
