// SPDX-License-Identifier: Apache-2.0
// Output-stationary implicit GEMM: the dataflow of SpConv 2 and TorchSparse++. This header holds
// what the implementations for all backends share.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"

namespace voxconv {

inline constexpr char kImplicitGemmName[] = "implicit_gemm";

PluginDescription DescribeImplicitGemm();

class ImplicitGemm : public Dataflow {
 public:
  ImplicitGemm(Options options, MaskSorter sorter);

  const Options& options() const override { return options_; }

 protected:
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override;
  // Whether a layer of this shape wants the offsets of its map cut into parts by the number of
  // rows, if the option `splits` leaves it open.
  virtual bool CutsByRows(const ConvShape&) const { return false; }
  // The parts for such layers.
  virtual int PartsOfRows(int64_t, const ExecutionContext&) const { return 1; }
  // The arrays of a prepared map, which owns them. kInvalidArgument for a map in another layout.
  static absl::StatusOr<const MaskSortedArrays*> LayoutOf(const PreparedMap& map);

 private:
  // The rule by which a map of `num_offsets` offsets is sorted.
  MaskSortedRule RuleFor(int num_offsets) const;

  Options options_;
  MaskOrder order_;
  MaskSorter sorter_;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_H_
