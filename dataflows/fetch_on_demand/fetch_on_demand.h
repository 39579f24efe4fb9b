// SPDX-License-Identifier: Apache-2.0
// Fetch-on-demand: MinkowskiEngine's dataflow for small channel counts. One kernel gathers,
// multiplies and scatters. Kernel offsets are fused as in PCEngine (Section 5). This header holds
// what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {

inline constexpr char kFetchOnDemandName[] = "fetch_on_demand";

PluginDescription DescribeFetchOnDemand();

// kInvalidArgument for copies with another fusion than separate: a layer that copies has no other.
// kInvalidArgument also for mma=6xbf16 with another fusion than segmented.
absl::Status CheckFetchOnDemandOptions(const Options& options);

// The factory that a backend registers. `Plugin` is the backend's implementation.
template <typename Plugin>
absl::StatusOr<std::unique_ptr<const Dataflow>> MakeFetchOnDemand(Options options) {
  VOXCONV_RETURN_IF_ERROR(CheckFetchOnDemandOptions(options));
  return std::make_unique<Plugin>(std::move(options));
}

class FetchOnDemand : public Dataflow {
 public:
  explicit FetchOnDemand(Options options);
  // `fusion` takes the place of the options' own.
  FetchOnDemand(Options options, FgmsFusion fusion);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  FgmsFusion fusion() const { return fusion_; }
  // Whether a layer of this shape copies rows for this map, in the place of fetching them.
  bool Copies(const KernelMap& map, const ConvShape& shape) const {
    return CopiesRows(copies_, shape.c_in, shape.c_out, map.num_inputs());
  }

 private:
  Options options_;
  FgmsFusion fusion_;
  CopyRule copies_;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_H_
