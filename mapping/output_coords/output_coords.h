// SPDX-License-Identifier: Apache-2.0
// What the plugins of output coordinates share on every backend. They differ in how they list
// the outputs of all inputs, with repetitions.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_

#include <cstdint>
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

// The option of "location_table": its largest array, in bytes.
OptionSchema LocationTableOptions();
int64_t MaxTableBytes(const Options& options);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_H_
