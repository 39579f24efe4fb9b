// SPDX-License-Identifier: Apache-2.0
// Fetch-on-demand: MinkowskiEngine's dataflow for small channel counts. One kernel gathers,
// multiplies and scatters. Kernel offsets are fused as in PCEngine (Section 5). This header holds
// what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_

#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {

inline constexpr char kFetchOnDemandName[] = "fetch_on_demand";

PluginDescription DescribeFetchOnDemand();

class FetchOnDemand : public Dataflow {
 public:
  explicit FetchOnDemand(Options options);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  FgmsFusion fusion() const { return fusion_; }

 private:
  Options options_;
  FgmsFusion fusion_;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_
