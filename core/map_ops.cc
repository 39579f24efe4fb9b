// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/map_ops.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

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

absl::StatusOr<Array<int32_t>> AllocateTable(int64_t rows, int num_offsets,
                                             const ExecutionContext& context) {
  if (num_offsets > 0 && rows > INT64_MAX / int64_t{sizeof(int32_t)} / num_offsets) {
    return InvalidMap(
        absl::StrCat("a table of ", rows, " x ", num_offsets, " entries is too large"));
  }
  return AllocateArray<int32_t>(rows * num_offsets, context);
}

}  // namespace voxconv
