// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/output_coords.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

Support ExpandingOutputCoords::DoSupports(const ConvGeometry& geometry) const {
  if (geometry.kind() == ConvKind::kStrided || geometry.kind() == ConvKind::kTransposed) {
    return Support::Yes();
  }
  return Support::No(absl::StrCat("outputs of ", ToString(geometry.kind()),
                                  " convolutions are given, not computed"));
}

}  // namespace voxconv
