// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/hash2col/hash2col.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kIndexBytes = sizeof(int32_t);
// Of the neighbours that col2hash looks up at a time.
constexpr int64_t kLookupBytes = int64_t{16} << 20;

int64_t TableBytes(const KernelMap& map) {
  return map.num_outputs() * map.num_offsets() * kIndexBytes;
}

// Row `row` of a matrix.
const void* RowOf(const ConstTensorView& matrix, int64_t row) {
  return static_cast<const char*>(matrix.data) + row * matrix.channels * SizeOf(matrix.dtype);
}
void* RowOf(const TensorView& matrix, int64_t row) {
  return static_cast<char*>(matrix.data) + row * matrix.channels * SizeOf(matrix.dtype);
}

// `matrix` in f32, at `data`.
TensorView AsF32(const TensorView& matrix, void* data) {
  TensorView view = matrix;
  view.data = data;
  view.dtype = DType::kF32;
  return view;
}

}  // namespace

PluginDescription DescribeHash2col() {
  PluginDescription description{
      .name = kHash2colName,
      .summary =
          "columns of receptive fields: filled by hash2col, added up by col2hash; one large matmul",
      .source = "H-CNN, Section 4, Algorithms 1 and 2",
      .extra_variants = {"workspace_mib=1"}};
  description.options
      .Enum("columns", {"table", "lookup"}, "table",
            "where columns find a voxel's neighbours: in the kernel map's table, or, block by "
            "block, by lookups in the index of a mapping that offers them "
            "(perfect_hash:map=lookup; H-CNN, Algorithm 1)")
      .Enum("transposed", {"col2hash", "hash2col"}, "col2hash",
            "layers with fewer inputs than outputs, as transposed and inverse ones have: columns "
            "of inputs, added up by col2hash, or columns of outputs, as in all other layers")
      .Int("workspace_mib", 0, 0, 1 << 20,
           "limit of the columns in MiB; rows are done in blocks that fit; 0: 64 on the CPU, 1024 "
           "on CUDA");
  return description;
}

Hash2colPlan::Hash2colPlan(Pass pass, Lowering lowering, const KernelMap& map,
                           const ConvShape& shape, const ColumnSizes& columns, int64_t block_rows)
    : lowering_(lowering),
      rows_(columns.rows),
      column_size_(map.num_offsets() * columns.channels),
      block_rows_(block_rows),
      step_(block_rows) {
  if (lowering == Lowering::kCol2hash) step_ = std::max<int64_t>(1, map.num_outputs());
  if (map.form() == MapForm::kLookup) {
    const int64_t found = kLookupBytes / std::max<int64_t>(1, map.num_offsets() * kIndexBytes);
    if (lowering == Lowering::kCol2hash) step_ = std::clamp<int64_t>(found, 1, step_);
    neighbours_slot_ = booking_.Book<int32_t>(step_ * map.num_offsets());
  }
  kernel_ =
      lowering == Lowering::kHash2col ? "hash2col, dense products" : "dense products, col2hash";
  const int64_t element = SizeOf(columns.dtype);
  columns_slot_ = booking_.Book(block_rows * column_size_ * element);
  work_.true_pairs = map.counts_known() ? map.num_pairs() : 0;
  work_.padded_pairs = rows_ * map.num_offsets();
  // Columns are written and read. Parts of pairs alone are copied into them, or added from them.
  work_.bytes_written = rows_ * column_size_ * element;
  work_.bytes_read = work_.true_pairs * columns.channels * element;
  if (lowering == Lowering::kHash2col) {
    work_.bytes_read += rows_ * column_size_ * element;
    BookHash2col(pass, map, shape);
  } else {
    BookCol2hash(pass, map, shape);
  }
}

void Hash2colPlan::BookHash2col(Pass pass, const KernelMap& map, const ConvShape& shape) {
  const int64_t weights = column_size_ * shape.c_out;
  const int64_t outputs = rows_ * shape.c_out * SizeOf(shape.types.output);
  const int64_t blocks = CeilDiv(rows_, block_rows_);
  work_.bytes_read += TableBytes(map);
  if (neighbours_slot_ >= 0) work_.bytes_written += TableBytes(map);
  if (pass == Pass::kForward) {
    work_.bytes_read += blocks * weights * SizeOf(shape.types.weights);
    work_.bytes_written += outputs;
    return;
  }
  work_.bytes_read += outputs;
  work_.bytes_written += weights * SizeOf(shape.types.weights);
  if (blocks <= 1) return;
  work_.bytes_read += (blocks - 1) * weights * kFloatBytes;
  work_.bytes_written += (blocks - 1) * weights * kFloatBytes;
  if (shape.types.weights != DType::kF32) sums_slot_ = booking_.Book<float>(weights);
}

void Hash2colPlan::BookCol2hash(Pass pass, const KernelMap& map, const ConvShape& shape) {
  const bool forward = pass == Pass::kForward;
  const DType to = forward ? shape.types.output : shape.types.input;
  const DType from = forward ? shape.types.input : shape.types.output;
  const int64_t from_channels = forward ? shape.c_in : shape.c_out;
  const int64_t sums = map.num_outputs() * (forward ? shape.c_out : shape.c_in);
  const int64_t weight_bytes = column_size_ * from_channels * SizeOf(shape.types.weights);
  const int64_t blocks = std::max<int64_t>(1, CeilDiv(rows_, block_rows_));
  weights_slot_ = booking_.Book(weight_bytes);
  if (blocks > 1 && to != DType::kF32) sums_slot_ = booking_.Book<float>(sums);
  work_.bytes_read += rows_ * from_channels * SizeOf(from) + (1 + blocks) * weight_bytes +
                      blocks * TableBytes(map) + (blocks - 1) * sums * kFloatBytes;
  if (neighbours_slot_ >= 0) work_.bytes_written += blocks * TableBytes(map);
  work_.bytes_written += weight_bytes + sums * SizeOf(to) + (blocks - 1) * sums * kFloatBytes;
}

void Hash2colPlan::CountLaunches() { work_.launches = CeilDiv(rows_, block_rows_); }

Hash2col::Hash2col(Options options, int64_t default_mib) : options_(std::move(options)) {
  const int64_t given = options_.GetInt("workspace_mib");
  limit_ = (given > 0 ? given : default_mib) << 20;
  looks_up_ = options_.GetEnum("columns") == "lookup";
  transposed_by_col2hash_ = options_.GetEnum("transposed") == "col2hash";
}

MapNeed Hash2col::DoNeededMap(Pass pass, const ConvShape& shape) const {
  // Lookups are made among the inputs. The transposed map needs lookups among the outputs.
  const bool transposed = pass == Pass::kInputGrad && !shape.symmetric;
  return {.transposed = transposed,
          .form = looks_up_ && !transposed ? MapForm::kLookup : MapForm::kNeighbourTable};
}

// H-CNN Section 4, transposed convolution: it "flips the input and output of the forward
// convolution". hash2col's columns of its outputs are mostly padding.
Lowering Hash2col::LoweringOf(Pass pass, const KernelMap& map) const {
  if (pass == Pass::kInputGrad) return Lowering::kCol2hash;
  const bool flipped = pass == Pass::kForward && map.num_inputs() < map.num_outputs();
  return flipped && transposed_by_col2hash_ ? Lowering::kCol2hash : Lowering::kHash2col;
}

absl::StatusOr<std::unique_ptr<Hash2colPlan>> Hash2col::PlanBlocks(Pass pass, const KernelMap& map,
                                                                   const ConvShape& shape) const {
  const Lowering lowering = LoweringOf(pass, map);
  const int64_t parts = pass == Pass::kForward ? shape.c_out : shape.c_in;
  // Products that col2hash adds up stay f32, so that the sum is rounded once.
  const ColumnSizes columns = lowering == Lowering::kHash2col
                                  ? ColumnSizes{map.num_outputs(), shape.c_in, shape.types.input}
                                  : ColumnSizes{map.num_inputs(), parts, DType::kF32};
  VOXCONV_ASSIGN_OR_RETURN(const int64_t block_rows,
                           BlockRows(columns.rows, map, columns.channels, columns.dtype));
  return std::make_unique<Hash2colPlan>(pass, lowering, map, shape, columns, block_rows);
}

absl::StatusOr<int64_t> Hash2col::BlockRows(int64_t rows, const KernelMap& map, int64_t channels,
                                            DType dtype) const {
  // A map without offsets has columns of no size; its outputs are zero.
  const int64_t row_bytes = std::max<int64_t>(1, map.num_offsets() * channels * SizeOf(dtype));
  if (row_bytes > limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kHash2colName, ": workspace_mib=", limit_ >> 20, ": one column of ",
                     map.num_offsets(), " offsets x ", channels, " channels takes ", row_bytes,
                     " bytes; at least ", CeilDiv(row_bytes, int64_t{1} << 20), " is allowed"));
  }
  return std::clamp<int64_t>(rows, 1, limit_ / row_bytes);
}

absl::Status Hash2col::ForNeighbours(const Hash2colPlan& plan, const KernelMap& map,
                                     const Workspace& workspace, const ExecutionContext& context,
                                     NeighboursBody body) const {
  for (int64_t first = 0; first == 0 || first < map.num_outputs(); first += plan.step()) {
    const int64_t rows = std::min(plan.step(), map.num_outputs() - first);
    if (plan.neighbours_slot() < 0) {
      const int32_t* table = map.table().table.data();
      VOXCONV_RETURN_IF_ERROR(body(first, rows, table + first * map.num_offsets()));
      continue;
    }
    auto* found = workspace.Get<int32_t>(plan.neighbours_slot());
    VOXCONV_RETURN_IF_ERROR(map.lookup().Find(first, rows, found, context));
    VOXCONV_RETURN_IF_ERROR(body(first, rows, found));
  }
  return absl::OkStatus();
}

// Sums of products over a map: row q of `to` is the sum of from[p] * w[k] over the row's pairs.
struct Hash2col::Col2hashArgs {
  ConstTensorView from;
  ConstTensorView weights;
  bool transposed = false;  // the layer's weights are transposed
  bool reversed = false;    // see ColumnSum
  TensorView to;
};

absl::Status Hash2col::DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                                 const ForwardArgs& args, const Workspace& workspace,
                                 const ExecutionContext& context) const {
  const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
  const KernelMap& map = prepared.map();
  if (plan.lowering() == Lowering::kCol2hash) {
    const Col2hashArgs sums{.from = args.input, .weights = args.weights, .to = args.output};
    return Col2hash(plan, map, sums, workspace, context);
  }
  void* columns = workspace.Get<void>(plan.columns_slot());
  return ForNeighbours(plan, map, workspace, context,
                       [&](int64_t first, int64_t rows, const int32_t* neighbours) -> absl::Status {
                         {
                           const StageScope stage(context, Stage::kGather);
                           VOXCONV_RETURN_IF_ERROR(FillColumns(neighbours, rows * map.num_offsets(),
                                                               args.input, columns, context));
                         }
                         const StageScope stage(context, Stage::kGemm);  // Equation 3
                         return Multiply({.m = rows,
                                          .n = plan.shape().c_out,
                                          .k = plan.column_size(),
                                          .a = columns,
                                          .b = args.weights.data,
                                          .c = RowOf(args.output, first),
                                          .precision = plan.shape().types.precision,
                                          .c_dtype = args.output.dtype},
                                         context);
                       });
}

absl::Status Hash2col::DoWeightGrad(const DataflowPlan& base_plan, const PreparedMap& prepared,
                                    const WeightGradArgs& args, const Workspace& workspace,
                                    const ExecutionContext& context) const {
  const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
  const KernelMap& map = prepared.map();
  void* columns = workspace.Get<void>(plan.columns_slot());
  const TensorView sums = plan.sums_slot() < 0
                              ? args.weights_grad
                              : AsF32(args.weights_grad, workspace.Get<void>(plan.sums_slot()));
  // Without outputs, the gradient is zero: a product of depth 0.
  VOXCONV_RETURN_IF_ERROR(
      ForNeighbours(plan, map, workspace, context,
                    [&](int64_t first, int64_t rows, const int32_t* neighbours) -> absl::Status {
                      {
                        const StageScope stage(context, Stage::kGather);
                        VOXCONV_RETURN_IF_ERROR(FillColumns(neighbours, rows * map.num_offsets(),
                                                            args.input, columns, context));
                      }
                      const StageScope stage(context, Stage::kGemm);  // Equation 7
                      return Multiply({.m = plan.column_size(),
                                       .n = plan.shape().c_out,
                                       .k = rows,
                                       .a = columns,
                                       .b = RowOf(args.output_grad, first),
                                       .c = sums.data,
                                       .transpose_a = true,
                                       .accumulate = first > 0,
                                       .precision = plan.shape().types.precision,
                                       .c_dtype = sums.dtype},
                                      context);
                    }));
  if (plan.sums_slot() < 0) return absl::OkStatus();
  const StageScope stage(context, Stage::kConvert);
  return context.backend->tensor_ops().Convert(sums, args.weights_grad, context);
}

absl::Status Hash2col::DoInputGrad(const DataflowPlan& base_plan, const PreparedMap& prepared,
                                   const InputGradArgs& args, const Workspace& workspace,
                                   const ExecutionContext& context) const {
  // In a symmetric map, the output that input p meets under offset k is the input that output p
  // meets under offset K-1-k.
  const Col2hashArgs sums{.from = args.output_grad,
                          .weights = args.weights,
                          .transposed = true,
                          .reversed = base_plan.shape().symmetric,
                          .to = args.input_grad};
  return Col2hash(static_cast<const Hash2colPlan&>(base_plan), prepared.map(), sums, workspace,
                  context);
}

// A sum over several blocks is added up in f32: in `to` itself, or in the plan's slot.
absl::Status Hash2col::Col2hash(const Hash2colPlan& plan, const KernelMap& map,
                                const Col2hashArgs& args, const Workspace& workspace,
                                const ExecutionContext& context) const {
  void* columns = workspace.Get<void>(plan.columns_slot());
  void* unrolled = workspace.Get<void>(plan.weights_slot());
  const TensorView sums =
      plan.sums_slot() < 0 ? args.to : AsF32(args.to, workspace.Get<void>(plan.sums_slot()));
  {
    const StageScope stage(context, Stage::kConvert);
    VOXCONV_RETURN_IF_ERROR(
        UnrollWeights(args.weights, map.num_offsets(), args.transposed, unrolled, context));
  }
  // At least once: without columns, the sums are zero.
  for (int64_t first = 0; first == 0 || first < plan.rows(); first += plan.block_rows()) {
    const int64_t rows = std::min(plan.block_rows(), plan.rows() - first);
    const bool last = first + rows == plan.rows();
    {
      const StageScope stage(context, Stage::kGemm);  // Equation 8
      VOXCONV_RETURN_IF_ERROR(Multiply({.m = rows,
                                        .n = plan.column_size(),
                                        .k = args.from.channels,
                                        .a = RowOf(args.from, first),
                                        .b = unrolled,
                                        .c = columns,
                                        .precision = plan.shape().types.precision,
                                        .c_dtype = DType::kF32},
                                       context));
    }
    const TensorView to = last ? args.to : sums;
    const auto* so_far = first > 0 ? static_cast<const float*>(sums.data) : nullptr;
    VOXCONV_RETURN_IF_ERROR(ForNeighbours(
        plan, map, workspace, context,
        [&](int64_t first_sum, int64_t num_sums, const int32_t* neighbours) -> absl::Status {
          const StageScope stage(context, Stage::kScatter);
          TensorView part = to;
          part.data = RowOf(to, first_sum);
          part.rows = num_sums;
          return SumColumns(
              {.neighbours = neighbours,
               .num_offsets = map.num_offsets(),
               .reversed = args.reversed,
               .columns = static_cast<const float*>(columns),
               .first = first,
               .count = rows,
               .so_far = so_far == nullptr ? nullptr : so_far + first_sum * to.channels,
               .sums = part},
              context);
        }));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
