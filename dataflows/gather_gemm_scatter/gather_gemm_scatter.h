// SPDX-License-Identifier: Apache-2.0
// Gather, multiply, scatter. This header holds what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GATHER_GEMM_SCATTER_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GATHER_GEMM_SCATTER_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"
#include "voxconv/dataflows/gather_gemm_scatter/plan.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/schedule.h"

namespace voxconv {

inline constexpr char kGatherGemmScatterName[] = "gather_gemm_scatter";

PluginDescription DescribeGatherGemmScatter();

// Checks what the schema of the options cannot express. kInvalidArgument for options that do not
// go together.
absl::Status CheckGatherGemmScatterOptions(const Options& options);

class GatherGemmScatter : public Dataflow {
 public:
  GatherGemmScatter(Options options, PositionLayoutMaker layouts);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override;
  // Groups the offsets and gives each group its rows of the buffers. Errors: kInvalidArgument for
  // a map in another layout, and kResourceExhausted for a batch that does not fit the buffers.
  absl::StatusOr<Schedule> ScheduleOf(const PreparedMap& prepared, const ConvShape& shape) const;

  const MoveRule& move() const { return move_; }
  const CudaMoveRule& cuda() const { return cuda_; }
  bool ragged() const { return grouping_.grouping == Grouping::kRagged; }

 private:
  const Options options_;
  const GroupingRule grouping_;
  const MoveRule move_;
  const CudaMoveRule cuda_;
  const PositionLayoutMaker layouts_;
};

// The factory that a backend registers. `Plugin` is the backend's implementation.
template <typename Plugin>
absl::StatusOr<std::unique_ptr<const Dataflow>> MakeGatherGemmScatter(Options options) {
  VOXCONV_RETURN_IF_ERROR(CheckGatherGemmScatterOptions(options));
  return std::make_unique<Plugin>(std::move(options));
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GATHER_GEMM_SCATTER_H_
