// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/input_order.h"

#include "voxconv/core/check.h"
#include "voxconv/core/profile.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::Status InputOrder::Sort(const CoordinateSetPtr& given, const ExecutionContext& context) {
  if (given_ != nullptr && given_->id() == given->id()) return absl::OkStatus();
  Clear();
  if (!given->sorted()) {
    VoxelOps* const ops = context.backend->voxel_ops();
    VOXCONV_CHECK(ops != nullptr);  // CompileNetwork asks for them
    const StageScope stage(context, Stage::kConvert);
    VOXCONV_ASSIGN_OR_RETURN(sorted_, ops->Sort(*given, context));
  }
  given_ = given;
  return absl::OkStatus();
}

absl::StatusOr<Tensor> InputOrder::Move(const PointMapView& rows, const ConstTensorView& x,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Tensor moved, Tensor::Create(x.rows, x.channels, x.dtype, context));
  const StageScope stage(context, Stage::kConvert);
  VOXCONV_RETURN_IF_ERROR(context.backend->voxel_ops()->Devoxelize(rows, x, moved.view(), context));
  return moved;
}

}  // namespace voxconv
