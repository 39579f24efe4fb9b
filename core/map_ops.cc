#include "core/map_ops.h"

#include <utility>

namespace voxconv {

absl::StatusOr<KernelMap> MapOps::To(MapForm form, const KernelMap& map,
                                     const ExecutionContext& context) {
  VOXCONV_CHECK(form != MapForm::kNone);
  if (map.form() == form) return map;
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());  // conversions go by the sizes
  const StageScope scope(context, Stage::kConvert);
  if (form == MapForm::kNeighbourTable) {
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable table, PairsToTable(map, context));
    return map.WithStorage(std::move(table));
  }
  VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, TableToPairs(map, context));
  return map.WithStorage(std::move(pairs));
}

absl::StatusOr<KernelMap> MapOps::Transpose(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());
  const StageScope scope(context, Stage::kConvert);
  if (!map.counts_known()) {
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable table, TransposeTable(map, context));
    return map.Transposed(std::move(table));
  }
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, To(MapForm::kPairs, map, context));
  VOXCONV_ASSIGN_OR_RETURN(PairList transposed, TransposePairs(pairs, context));
  return pairs.Transposed(std::move(transposed));
}

}  // namespace voxconv
