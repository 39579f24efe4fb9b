// SPDX-License-Identifier: Apache-2.0
// Direct convolution over an offset table (OFT): Luo and Lai's compute kernel, Section III-C. This
// header holds what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_DIRECT_DIRECT_H_
#define VOXCONV_DATAFLOWS_DIRECT_DIRECT_H_

#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

inline constexpr char kDirectName[] = "direct";

PluginDescription DescribeDirect();

// Where a kernel reads the weights. kNaive reads them from their array. kChannel reads those of one
// output channel, and kCached those of a block of channels, from the cache (on CUDA: from shared
// memory).
enum class DirectWeights { kNaive, kChannel, kCached };

class Direct : public Dataflow {
 public:
  explicit Direct(Options options);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  DirectWeights weights() const { return weights_; }

 private:
  Options options_;
  DirectWeights weights_;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_DIRECT_H_
