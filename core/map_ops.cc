// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/map_ops.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {

namespace {

// Rows of a table that exists, for maps that were made in another form.
class TableLookup final : public NeighbourLookup {
 public:
  TableLookup(SharedArray<int32_t> table, int64_t num_offsets)
      : table_(std::move(table)), num_offsets_(num_offsets) {}

  absl::Status Find(int64_t first, int64_t count, int32_t* table,
                    const ExecutionContext& context) const override {
    const StageScope scope(context, Stage::kMapQuery);
    const MemorySpace space = context.backend->device().space;
    return context.backend->Copy(table, space, table_.data() + first * num_offsets_, space,
                                 count * num_offsets_ * static_cast<int64_t>(sizeof(int32_t)),
                                 *context.stream);
  }
  int64_t bytes() const override { return table_.bytes(); }

 private:
  SharedArray<int32_t> table_;  // [N_out, K]
  int64_t num_offsets_;
};

absl::StatusOr<NeighbourTable> FindAll(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           AllocateTable(map.num_outputs(), map.num_offsets(), context));
  VOXCONV_RETURN_IF_ERROR(map.lookup().Find(0, map.num_outputs(), table.data(), context));
  return NeighbourTable{std::move(table), {}};
}

}  // namespace

absl::StatusOr<KernelMap> MapOps::To(MapForm form, const KernelMap& map,
                                     const ExecutionContext& context) {
  VOXCONV_CHECK(form != MapForm::kNone);
  if (map.form() == form) return map;
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());  // conversions go by the sizes
  const StageScope scope(context, Stage::kConvert);
  KernelMap table = map;
  if (map.form() == MapForm::kPairs) {
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable made, PairsToTable(map, context));
    table = map.WithStorage(std::move(made));
  } else if (map.form() == MapForm::kLookup) {
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable found, FindAll(map, context));
    table = map.WithStorage(std::move(found));
  }
  if (form == MapForm::kNeighbourTable) return table;
  if (form == MapForm::kLookup) {
    return map.WithStorage(
        std::make_shared<const TableLookup>(table.table().table, map.num_offsets()));
  }
  VOXCONV_RETURN_IF_ERROR(table.EnsureCounts(context));
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, TableToPairs(table, context));
  return table.WithStorage(std::move(pairs));
}

absl::StatusOr<KernelMap> MapOps::Transpose(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());
  const StageScope scope(context, Stage::kConvert);
  if (!map.counts_known()) {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap table, To(MapForm::kNeighbourTable, map, context));
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable transposed, TransposeTable(table, context));
    return map.Transposed(std::move(transposed));
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
