// SPDX-License-Identifier: Apache-2.0
// What the three plugins of output coordinates share on every backend. They differ in how they list
// the outputs of all inputs, with repetitions.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_

#include <utility>

#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"

namespace voxconv {

class ExpandingOutputCoords : public OutputCoords {
 public:
  const Options& options() const final { return options_; }
  Support DoSupports(const ConvGeometry& geometry) const final;

 protected:
  explicit ExpandingOutputCoords(Options options) : options_(std::move(options)) {}

 private:
  Options options_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_
