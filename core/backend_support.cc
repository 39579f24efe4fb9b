// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/backend_support.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

Support F32Only(absl::string_view name, const ConvShape& shape) {
  if (shape.types == ConvTypes()) return Support::Yes();
  return Support::No(
      absl::StrCat(name, " on the CPU takes f32 only, not ",
                   shape.types.IsUniform() ? ToString(shape.types.precision) : "mixed dtypes"));
}

Support UniformTypes(absl::string_view name, const ConvShape& shape) {
  const ConvTypes& types = shape.types;
  if (types == ConvTypes::Of(types.precision)) return Support::Yes();
  return Support::No(absl::StrCat(name, " takes tensors of one dtype, not inputs of ",
                                  ToString(types.input), ", weights of ", ToString(types.weights),
                                  " and outputs of ", ToString(types.output), " in precision ",
                                  ToString(types.precision)));
}

}  // namespace voxconv
