// SPDX-License-Identifier: Apache-2.0
// Pooling through hash2col, and unpooling through col2hash (H-CNN, Section 4, "Pooling, unpooling &
// transposed convolution").
#include <algorithm>
#include <utility>

#include "voxconv/core/map_ops.h"
#include "voxconv/dataflows/hash2col/hash2col.h"

namespace voxconv {
namespace {

constexpr char kBothTables[] = "hash2col:both_tables";

// Elements before row `row` of a matrix.
int64_t Before(int64_t row, int64_t channels) { return row * channels; }

ConstTensorView RowsOf(const ConstTensorView& matrix, int64_t first, int64_t rows) {
  ConstTensorView part = matrix;
  part.data =
      static_cast<const char*>(matrix.data) + Before(first, matrix.channels) * SizeOf(matrix.dtype);
  part.rows = rows;
  return part;
}
TensorView RowsOf(const TensorView& matrix, int64_t first, int64_t rows) {
  TensorView part = matrix;
  part.data =
      static_cast<char*>(matrix.data) + Before(first, matrix.channels) * SizeOf(matrix.dtype);
  part.rows = rows;
  return part;
}

}  // namespace

MapNeed Hash2col::DoNeededPoolMap(Pass pass, bool symmetric) const {
  if (pass == Pass::kForward) {
    return {.form = looks_up_ ? MapForm::kLookup : MapForm::kNeighbourTable};
  }
  return {.form = MapForm::kNeighbourTable, .layout = symmetric ? "" : kBothTables};
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> Hash2col::DoPrepare(
    const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const {
  if (need.layout != kBothTables) return Dataflow::DoPrepare(map, need, context);
  MapOps& ops = context.backend->map_ops();
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap transposed, ops.Transpose(map, context));
  VOXCONV_ASSIGN_OR_RETURN(KernelMap table, ops.To(MapForm::kNeighbourTable, transposed, context));
  return std::make_shared<const BothTables>(map, std::move(table));
}

absl::Status Hash2col::DoPool(const PreparedMap& prepared, const PoolArgs& args,
                              const ExecutionContext& context) const {
  const KernelMap& map = prepared.map();
  const int64_t channels = args.input.channels;
  if (channels == 0) return absl::OkStatus();
  const int64_t outputs = map.num_outputs(), offsets = map.num_offsets();
  VOXCONV_ASSIGN_OR_RETURN(const int64_t block,
                           BlockRows(outputs, map, channels, args.input.dtype));
  VOXCONV_ASSIGN_OR_RETURN(
      Array<char> columns,
      AllocateArray<char>(block * offsets * channels * SizeOf(args.input.dtype), context));
  const bool lookup = map.form() == MapForm::kLookup;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> found,
                           AllocateArray<int32_t>(lookup ? block * offsets : 0, context));
  for (int64_t first = 0; first < outputs; first += block) {
    const int64_t rows = std::min(block, outputs - first);
    const int32_t* neighbours = found.data();
    if (lookup) {
      VOXCONV_RETURN_IF_ERROR(map.lookup().Find(first, rows, found.data(), context));
    } else {
      neighbours = map.table().table.data() + first * offsets;
    }
    {
      const StageScope stage(context, Stage::kGather);
      VOXCONV_RETURN_IF_ERROR(
          FillColumns(neighbours, rows * offsets, args.input, columns.data(), context));
    }
    const StageScope stage(context, Stage::kDense);
    int32_t* switches = args.switches;
    if (switches != nullptr) switches += Before(first, channels);
    VOXCONV_RETURN_IF_ERROR(PoolColumns({.neighbours = neighbours,
                                         .num_offsets = map.num_offsets(),
                                         .columns = columns.data(),
                                         .mode = args.mode,
                                         .pooled = RowsOf(args.output, first, rows),
                                         .switches = switches},
                                        context));
  }
  return absl::OkStatus();
}

// Columns are f32, so that a sum is rounded once. A sum over several blocks is added up in f32: in
// the output itself, or beside it.
absl::Status Hash2col::DoUnpool(const PreparedMap& prepared, const UnpoolArgs& args,
                                const ExecutionContext& context) const {
  const KernelMap& map = prepared.map();
  const auto* both = dynamic_cast<const BothTables*>(&prepared);
  const KernelMap& transposed = both == nullptr ? map : both->transposed();
  const int64_t channels = args.input.channels;
  if (channels == 0) return absl::OkStatus();
  const int64_t outputs = map.num_outputs(), offsets = map.num_offsets();
  VOXCONV_ASSIGN_OR_RETURN(const int64_t block, BlockRows(outputs, map, channels, DType::kF32));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> columns,
                           AllocateArray<float>(block * offsets * channels, context));
  const bool beside = outputs > block && args.output.dtype != DType::kF32;
  VOXCONV_ASSIGN_OR_RETURN(Array<float> sums,
                           AllocateArray<float>(beside ? args.output.rows * channels : 0, context));
  TensorView so_far = args.output;
  if (beside) so_far.data = sums.data();
  so_far.dtype = DType::kF32;
  // At least once: without outputs, the sums are zero.
  for (int64_t first = 0; first == 0 || first < outputs; first += block) {
    const int64_t rows = std::min(block, outputs - first);
    {
      const StageScope stage(context, Stage::kDense);
      const int32_t* switches = args.switches;
      if (switches != nullptr) switches += Before(first, channels);
      VOXCONV_RETURN_IF_ERROR(
          SpreadColumns({.neighbours = map.table().table.data() + first * offsets,
                         .num_offsets = map.num_offsets(),
                         .mode = args.mode,
                         .values = RowsOf(args.input, first, rows),
                         .switches = switches,
                         .columns = columns.data()},
                        context));
    }
    const bool last = first + rows == outputs;
    const StageScope stage(context, Stage::kScatter);
    VOXCONV_RETURN_IF_ERROR(
        SumColumns({.neighbours = transposed.table().table.data(),
                    .num_offsets = map.num_offsets(),
                    .reversed = both == nullptr,
                    .columns = columns.data(),
                    .first = first,
                    .count = rows,
                    .so_far = first > 0 ? static_cast<const float*>(so_far.data) : nullptr,
                    .sums = last ? args.output : so_far},
                   context));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
