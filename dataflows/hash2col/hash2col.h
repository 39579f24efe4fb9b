// SPDX-License-Identifier: Apache-2.0
// H-CNN's hash2col and col2hash. This header holds what the implementations for all backends share.
//
// A column stacks the features of one voxel's receptive field. hash2col fills the columns of
// outputs (Algorithm 1). col2hash adds the parts of columns up in the voxels that they belong to
// (Algorithm 2). The passes of a layer with inputs D_i, outputs D_o and weights W, where ~ marks
// columns:
//   forward         D_o = W ~D_i, by hash2col                        (Equation 3)
//   weight gradient dW = dD_o transposed(~D_i), by hash2col          (Equation 7)
//   input gradient  d~D_i = transposed(W) dD_o, then col2hash        (Equation 8)
// A transposed convolution flips inputs and outputs: ~D_o = transposed(W) D_i, then col2hash, with
// W that of the convolution that it transposes (Section 4). Those are the layer's own weights.
// Pooling takes the greatest, or the sum, of each column that hash2col has filled. Its transpose
// fills the columns of outputs with the parts of their values, and col2hash adds these up.
// The paper's matrices have a column for each voxel. Ours have a row, as all tensors do.
#ifndef VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_
#define VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {

inline constexpr char kHash2colName[] = "hash2col";

PluginDescription DescribeHash2col();

// How a pass uses columns. kHash2col fills them from features and multiplies them. kCol2hash gets
// them as a product and adds their parts up.
enum class Lowering { kHash2col, kCol2hash };

// The columns of one pass. They are made and used in blocks of rows, which take less memory.
struct ColumnSizes {
  int64_t rows = 0;      // of all columns: outputs for kHash2col, inputs of the map for kCol2hash
  int64_t channels = 0;  // of one part of a column
  DType dtype = DType::kF32;
};

class Hash2colPlan final : public DataflowPlan {
 public:
  // Books the columns of one block of `block_rows` rows, and what else the pass needs. A column has
  // a part for every offset, whether the map has a pair there or not, so that rows * K parts are
  // multiplied. work() does not count launches. If the map's pairs are not counted, work() counts
  // neither the pairs nor what is read for them. `map` is in the direction of the pass.
  Hash2colPlan(Pass pass, Lowering lowering, const KernelMap& map, const ConvShape& shape,
               const ColumnSizes& columns, int64_t block_rows);

  Lowering lowering() const { return lowering_; }
  int64_t rows() const { return rows_; }
  // K * channels: the elements of one column.
  int64_t column_size() const { return column_size_; }
  int64_t block_rows() const { return block_rows_; }
  // Output rows of the map whose neighbours are read at a time.
  int64_t step() const { return step_; }
  // The neighbours that a lookup finds for a step, [step, K], or -1: the map has a table.
  int neighbours_slot() const { return neighbours_slot_; }
  int columns_slot() const { return columns_slot_; }  // [block_rows, column_size]
  // kCol2hash: [channels of the product's rows, column_size], see Hash2col::UnrollWeights.
  int weights_slot() const { return weights_slot_; }
  // f32 sums of all blocks so far, or -1: the result holds them.
  int sums_slot() const { return sums_slot_; }

  // Counts one launch for each block.
  void CountLaunches();

 private:
  void BookHash2col(Pass pass, const KernelMap& map, const ConvShape& shape);
  void BookCol2hash(Pass pass, const KernelMap& map, const ConvShape& shape);

  Lowering lowering_;
  int64_t rows_;
  int64_t column_size_;
  int64_t block_rows_;
  int64_t step_;
  int neighbours_slot_ = -1;
  int columns_slot_ = -1;
  int weights_slot_ = -1;
  int sums_slot_ = -1;
};

// What col2hash adds up (H-CNN Algorithm 2). Row q of `sums` becomes so_far[q] plus, for the
// offsets k = 0, 1, ..., K-1 in this order, part k of the column of q's neighbour under k, for
// neighbours in rows [first, first + count). All memory is the backend's, contiguous.
struct ColumnSum {
  const int32_t* neighbours = nullptr;  // [rows of sums, K]: rows or -1
  int num_offsets = 0;
  bool reversed = false;           // the neighbour under k is entry K-1-k
  const float* columns = nullptr;  // [count, K * channels of sums]
  int64_t first = 0, count = 0;
  const float* so_far = nullptr;  // like sums; null: zeros. May be the memory of `sums`.
  TensorView sums;                // rounded once, if it is not f32
};

// What becomes of each column of a pooling (H-CNN Section 4, "Pooling"). All memory is the
// backend's, contiguous.
struct ColumnPool {
  const int32_t* neighbours = nullptr;  // [rows, K]: input rows or -1, whose parts are zeros
  int num_offsets = 0;
  const void* columns = nullptr;  // [rows, K * C], in the dtype of `pooled`
  PoolMode mode = PoolMode::kMax;
  TensorView pooled;            // [rows, C], rounded once
  int32_t* switches = nullptr;  // [rows, C] of kMax, or null
};

// How a pooled value is handed back to its column: part k gets values / divisor where the offset
// has an input and, of kMax, that input is the switch. It gets 0 elsewhere.
struct ColumnSpread {
  const int32_t* neighbours = nullptr;  // [rows, K]
  int num_offsets = 0;
  PoolMode mode = PoolMode::kMax;
  ConstTensorView values;             // [rows, C]
  const int32_t* switches = nullptr;  // [rows, C] of kMax
  float* columns = nullptr;           // [rows, K * C]
};

// What unpooling reads: the map's own table, for the inputs of an output, and the table of the
// transposed map, for col2hash.
class BothTables final : public PreparedMap {
 public:
  BothTables(KernelMap map, KernelMap transposed)
      : PreparedMap(std::move(map)), transposed_(std::move(transposed)) {}

  const KernelMap& transposed() const { return transposed_; }
  int64_t bytes() const override { return PreparedMap::bytes() + transposed_.bytes(); }
  absl::Status Validate(const ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map().Validate(context));
    return transposed_.Validate(context);
  }

 private:
  KernelMap transposed_;
};

// The passes in blocks of columns. The steps that touch memory are each backend's. All passes are
// deterministic: they add in a fixed order, which depends on the size of a block.
class Hash2col : public Dataflow {
 public:
  // `default_mib` limits the columns if the option leaves the limit to the backend.
  Hash2col(Options options, int64_t default_mib);

  const Options& options() const override { return options_; }

 protected:
  bool Has(Pass) const override { return true; }
  // The neighbour table or the lookup of the forward pass, except for input gradients of maps that
  // are not symmetric: these read the table of the transposed map.
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override;
  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& workspace,
                         const ExecutionContext& context) const override;
  absl::Status DoInputGrad(const DataflowPlan& plan, const PreparedMap& map,
                           const InputGradArgs& args, const Workspace& workspace,
                           const ExecutionContext& context) const override;
  absl::Status DoWeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                            const WeightGradArgs& args, const Workspace& workspace,
                            const ExecutionContext& context) const override;

  bool Pools() const override { return true; }
  // Pooling reads the table or the lookup of the forward pass, unpooling BothTables, or the table
  // alone where the map is symmetric.
  MapNeed DoNeededPoolMap(Pass pass, bool symmetric) const override;
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override;
  absl::Status DoPool(const PreparedMap& map, const PoolArgs& args,
                      const ExecutionContext& context) const override;
  absl::Status DoUnpool(const PreparedMap& map, const UnpoolArgs& args,
                        const ExecutionContext& context) const override;

  // Calls body(first, rows, neighbours) for the output rows [first, first + rows) of the map, one
  // step of the plan after the other, and at least once. `neighbours` are those rows of the table.
  // A lookup finds them first.
  using NeighboursBody =
      absl::FunctionRef<absl::Status(int64_t first, int64_t rows, const int32_t* neighbours)>;
  absl::Status ForNeighbours(const Hash2colPlan& plan, const KernelMap& map,
                             const Workspace& workspace, const ExecutionContext& context,
                             NeighboursBody body) const;

  // Plans as many rows for a block as the limit allows. kResourceExhausted if one column exceeds
  // the limit.
  absl::StatusOr<std::unique_ptr<Hash2colPlan>> PlanBlocks(Pass pass, const KernelMap& map,
                                                           const ConvShape& shape) const;

  // A product of columns: C[m, n] = A[m, k] B[k, n], or C += A B. All are contiguous.
  struct Product {
    int64_t m = 0, n = 0, k = 0;
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    bool transpose_a = false;  // a is [k, m] in memory
    bool accumulate = false;
    Precision precision = Precision::kF32;
    DType c_dtype = DType::kF32;
  };

  // The steps. A backend implements them. Work is queued on the context's stream.
  //
  // H-CNN Algorithm 1: `cells` parts of columns, one for each entry of `neighbours`: the features
  // of that row of `input`, or zeros for -1.
  virtual absl::Status FillColumns(const int32_t* neighbours, int64_t cells,
                                   const ConstTensorView& input, void* columns,
                                   const ExecutionContext& context) const = 0;
  virtual absl::Status Multiply(const Product& product, const ExecutionContext& context) const = 0;
  // unrolled[i, k * C + c] = weights[k][i, c], or weights[k][c, i] if `transposed`. C are the
  // parts' channels. The type is that of the weights.
  virtual absl::Status UnrollWeights(const ConstTensorView& weights, int num_offsets,
                                     bool transposed, void* unrolled,
                                     const ExecutionContext& context) const = 0;
  // H-CNN Algorithm 2.
  virtual absl::Status SumColumns(const ColumnSum& sum, const ExecutionContext& context) const = 0;
  virtual absl::Status PoolColumns(const ColumnPool& pool,
                                   const ExecutionContext& context) const = 0;
  virtual absl::Status SpreadColumns(const ColumnSpread& spread,
                                     const ExecutionContext& context) const = 0;

 private:
  struct Col2hashArgs;
  // As many of `rows` columns of K * channels elements as the limit allows. kResourceExhausted if
  // one exceeds it.
  absl::StatusOr<int64_t> BlockRows(int64_t rows, const KernelMap& map, int64_t channels,
                                    DType dtype) const;
  Lowering LoweringOf(Pass pass, const KernelMap& map) const;
  absl::Status Col2hash(const Hash2colPlan& plan, const KernelMap& map, const Col2hashArgs& args,
                        const Workspace& workspace, const ExecutionContext& context) const;

  Options options_;
  int64_t limit_;  // bytes of the columns
  bool transposed_by_col2hash_;
  bool looks_up_;
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_HASH2COL_H_
