// SPDX-License-Identifier: Apache-2.0
// Dataflow plugins: how features are multiplied once the kernel map is known.
#ifndef VOXCONV_CORE_DATAFLOW_H_
#define VOXCONV_CORE_DATAFLOW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/plugin.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/workspace.h"

namespace voxconv {

// What a convolution layer computes. For the pairs (p, q, k) of its map:
//   kForward:     y[q] = sum of x[p] * w[k]
//   kInputGrad:   dx[p] = sum of dy[q] * transposed(w[k])
//   kWeightGrad:  dw[k] = sum of transposed(x[p]) * dy[q]
// (H-CNN, Equations 7 and 8.)
enum class Pass { kForward, kInputGrad, kWeightGrad };
inline constexpr Pass kAllPasses[] = {Pass::kForward, Pass::kInputGrad, Pass::kWeightGrad};
absl::string_view ToString(Pass pass);  // "forward", "input_grad", "weight_grad"

// How one convolution stores its tensors, and how it computes products and sums.
struct ConvTypes {
  DType input = DType::kF32;              // x and dx
  DType weights = DType::kF32;            // w and dw
  DType output = DType::kF32;             // y and dy
  Precision precision = Precision::kF32;  // what the factors of products are rounded to
  DType accumulate = DType::kF32;         // what sums are kept in

  // All tensors are stored as StorageOf(precision). Sums are f32.
  static ConvTypes Of(Precision precision);
  // Whether all tensors have the same dtype, and sums are f32.
  bool IsUniform() const;
  friend bool operator==(const ConvTypes&, const ConvTypes&) = default;
};

// The sizes of one layer. They are the same in every pass. The input is [N_in, c_in]. The output is
// [N_out, c_out].
struct ConvShape {
  int64_t c_in = 0;
  int64_t c_out = 0;
  int num_offsets = 0;     // K
  bool symmetric = false;  // KernelMap::symmetric
  ConvTypes types;

  // The shape of the convolution whose forward pass computes this one's input gradient: inputs and
  // outputs are exchanged.
  ConvShape Transposed() const;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

// What a dataflow can do in one pass for one shape.
struct Capability {
  Support support;
  // The result is bitwise the same for the same arguments, in every run and with every number of
  // threads.
  bool deterministic = true;
  // kForward only: DoForward applies ForwardArgs::epilogue. If not, Forward applies it afterwards.
  bool fuses_epilogue = false;
  // The sum of the products of each pair, x[p] * w[k], is rounded to the output's dtype before it
  // is added to the output.
  bool rounds_partial_sums = false;
  // A weight that is NaN or infinite reaches only the outputs that have a pair of its offset. If
  // not, it may reach others through padding, whose products are 0 * w.
  bool isolates_weights = true;
  // Numbers below the least normal one may count as zero, as operands and as results.
  bool flushes_denormals = false;
  // The passes that the plugin does not compute itself (Has) are not supported for this shape.
  bool forward_only = false;
  // kForward only, and only with fuses_epilogue: input and output may have elements between their
  // rows. Those of the output are not written.
  bool strides_rows = false;
};

// The map that a pass wants to read.
struct MapNeed {
  // The pass runs over the map with inputs and outputs exchanged.
  bool transposed = false;
  // The form of the map that DoPrepare is given. Without a layout, the pass reads this form itself.
  MapForm form = MapForm::kPairs;
  // The key of the layout that DoPrepare makes, such as "tiles:rows=64". All layers that run with
  // the same plugin share one prepared map for equal needs on the same map. Hence the key must name
  // everything that the layout depends on besides the map. Empty: there is no layout.
  std::string layout = {};
  // Not empty: the plugin failed when it was asked. Prepare refuses such a need with this error.
  std::string error = {};
  friend bool operator==(const MapNeed&, const MapNeed&) = default;
};

// A map as a dataflow reads it. The base class is a map in one of its forms. A dataflow with a
// layout of its own derives a class that holds the layout. Arrays are in the backend's memory.
// Immutable. Serves any number of plans and passes. Must not outlive the backend.
class PreparedMap {
 public:
  explicit PreparedMap(KernelMap map) : map_(std::move(map)) {}
  virtual ~PreparedMap() = default;

  // Sizes, counts and flags of the map that was prepared, and those of its arrays that the layout
  // keeps. A layout that needs none of them keeps KernelMap::WithoutArrays.
  const KernelMap& map() const { return map_; }
  // Bytes of all arrays that the layout keeps, those of map() included.
  virtual int64_t bytes() const { return map_.bytes(); }
  // Checks every invariant of the layout on a host copy, for tests. Synchronises the stream.
  // kInvalidArgument names what is wrong.
  virtual absl::Status Validate(const ExecutionContext& context) const {
    return map_.Validate(context);
  }
  // The canonical pairs in the backend's memory, read from the layout alone, for tests. May
  // synchronise the stream.
  virtual absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const;

 private:
  KernelMap map_;
};

// The weights of one layer as the forward pass of a dataflow reads them: transposed, padded, or
// packed into panels. Made once for any number of runs (Dataflow::PrepareWeights), in the backend's
// memory. Owns that memory. Immutable. Does not refer to the weights that it was made of. Must not
// outlive the backend.
class PreparedWeights {
 public:
  PreparedWeights(Buffer memory, std::string layout)
      : memory_(std::move(memory)), layout_(std::move(layout)) {}
  virtual ~PreparedWeights() = default;

  const void* data() const { return memory_.data(); }
  int64_t bytes() const { return memory_.bytes(); }
  // The name of the layout, such as "panels". Names everything that the layout depends on besides
  // shape(). Not empty.
  const std::string& layout() const { return layout_; }
  // The shape of the layer. Dataflow::PrepareWeights sets it.
  const ConvShape& shape() const { return shape_; }

 private:
  friend class Dataflow;
  Buffer memory_;
  std::string layout_;
  ConvShape shape_;
};

// The schedule of one pass for one prepared map and shape: groups, tiles, workspace slots. Lies on
// the host. Immutable. Serves any number of runs of that pass.
class DataflowPlan {
 public:
  virtual ~DataflowPlan() = default;

  // The scratch memory that a run needs.
  const WorkspaceBooking& booking() const { return booking_; }
  // What each run adds to the profile's counters: pairs, launches and bytes, as far as the plan
  // knows them. A run adds by itself what only the run knows.
  const Counters& work() const { return work_; }
  // The kernel that computes the products, in a few words for people, such as "wgmma 128 x 96".
  // Names what the plan does besides, such as copies of operands that the kernel cannot read as
  // they are. Empty: the plugin does not say.
  const std::string& kernel() const { return kernel_; }
  // The layout of weights (PreparedWeights::layout) that a forward run of this plan reads. A run
  // that is given such weights makes no copy of its own. Empty: the run reads weights as they are.
  const std::string& weights_layout() const { return weights_layout_; }

  // What the plan was made for. Dataflow::Plan sets these.
  Pass pass() const { return pass_; }
  const ConvShape& shape() const { return shape_; }
  const Capability& capability() const { return capability_; }

 protected:
  WorkspaceBooking booking_;
  Counters work_;
  std::string kernel_;
  std::string weights_layout_;

 private:
  friend class Dataflow;
  Pass pass_ = Pass::kForward;
  ConvShape shape_;
  Capability capability_;
};

// What a layer does to its sum: y = sum * scale + shift per channel, then + residual, then
// max(y, 0) if `relu`. Computed in f32. A dataflow that fuses the epilogue rounds once, when it
// stores y. Otherwise the sum is rounded to the output's dtype before, and each operator that
// follows rounds its result.
struct Epilogue {
  const float* scale = nullptr;  // [C_out] in the backend's memory; null is 1
  const float* shift = nullptr;  // [C_out] in the backend's memory; null is 0
  // [N_out, C_out] in the output's dtype. Null data: none. May be the output itself if the dataflow
  // fuses the epilogue.
  ConstTensorView residual;
  bool relu = false;

  bool empty() const {
    return scale == nullptr && shift == nullptr && residual.data == nullptr && !relu;
  }
};

// The arguments of the three passes. Nothing is owned. Tensors are in the backend's memory,
// contiguous except where Capability::strides_rows says so, and of the dtypes of the plan's shape.
// A pass overwrites its whole result. The result must not overlap an argument, except for
// Epilogue::residual.
struct ForwardArgs {
  ConstTensorView input;  // [N_in, C_in]
  ConstTensorView
      weights;        // [K * C_in, C_out]: offset k's matrix is rows [k * C_in, (k + 1) * C_in)
  TensorView output;  // [N_out, C_out]
  Epilogue epilogue;
  // True if no work that is still queued writes the prepared map, the weights or the epilogue's
  // vectors. A kernel may then read them before the kernel in front of it on the stream has ended.
  bool settled = false;
  // The same weights, prepared by the same dataflow for the plan's shape, or null. They are read
  // where their layout is the plan's (DataflowPlan::weights_layout). Otherwise `weights` is read.
  // They must live until the run has ended.
  const PreparedWeights* prepared_weights = nullptr;
};

struct InputGradArgs {
  ConstTensorView output_grad;  // [N_out, C_out]
  ConstTensorView weights;      // [K * C_in, C_out]
  TensorView input_grad;        // [N_in, C_in]
};

struct WeightGradArgs {
  ConstTensorView input;        // [N_in, C_in]
  ConstTensorView output_grad;  // [N_out, C_out]
  TensorView weights_grad;      // [K * C_in, C_out]
};

// The arguments of pooling, TensorOps::Pool, and of its transpose, TensorOps::Unpool, which is also
// its gradient. All is in the backend's memory. Tensors have one dtype, f32 on the CPU.
struct PoolArgs {
  PoolMode mode = PoolMode::kMax;
  ConstTensorView input;        // [N_in, C]
  TensorView output;            // [N_out, C]
  int32_t* switches = nullptr;  // [N_out, C], of kMax alone; null: not wanted
};

struct UnpoolArgs {
  PoolMode mode = PoolMode::kMax;
  ConstTensorView input;              // [N_out, C]
  TensorView output;                  // [N_in, C]
  const int32_t* switches = nullptr;  // [N_out, C], what pooling wrote; of kMax alone
};

// One way to compute convolutions on one kind of backend. Stateless and const: one instance serves
// any number of threads, streams and maps.
//
// Callers use the public methods. These check arguments, time conversions and count work.
//
// A plugin overrides the Do... methods. It must compute kForward. The base class computes the
// gradients that the plugin does not compute itself (Has):
// - kInputGrad by DoForward on the transposed map with transposed weights. On a symmetric map it
//   takes the map as it is, and the transposed weights of offset K-1-k in the place of offset k.
// - kWeightGrad by TensorOps::WeightGradient, on pairs.
// It also pools by TensorOps, on pairs, unless the plugin does (Pools).
// A Do... method must not throw, and must not return OK with a null pointer. One that does gives
// kInternal, with the plugin and the method in the message.
class Dataflow : public NamedPlugin {
 public:
  Dataflow() : NamedPlugin("dataflow") {}
  virtual ~Dataflow() = default;

  // The instance's option values.
  virtual const Options& options() const = 0;

  // What the dataflow can do. O(1). Queues no work.
  Capability CapabilityOf(Pass pass, const ConvShape& shape) const;
  Support Supports(Pass pass, const ConvShape& shape) const {
    return CapabilityOf(pass, shape).support;
  }
  // The map that the pass reads. The shape must be supported. O(1). Queues no work.
  MapNeed NeededMap(Pass pass, const ConvShape& shape) const;

  // Prepares `map`, which must have the form and the direction of `need`. Without a layout the
  // result holds a copy of `map`, which shares its arrays. Otherwise the plugin makes the layout,
  // and this records Stage::kConvert. Queued on the context's stream; a layout that needs the
  // counts of the pairs on the host synchronises it (KernelMap::EnsureCounts). kInvalidArgument for
  // a map of another form and a layout that the plugin does not make. Errors of
  // KernelMap::CheckSizes. kResourceExhausted if the memory does not suffice.
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Prepare(const KernelMap& map,
                                                             const MapNeed& need,
                                                             const ExecutionContext& context) const;

  // Prepares the weights of a layer, [K * C_in, C_out], for forward runs with any number of rows.
  // Null where the dataflow reads the weights of this shape as they are. Queued on the context's
  // stream, which `weights` must outlive. Does not synchronise it. Records Stage::kConvert. Takes
  // time and memory in proportion to the weights. kInvalidArgument for weights that do not fit the
  // shape. kUnimplemented gives the reason why the shape is not supported. kResourceExhausted if
  // the memory does not suffice.
  absl::StatusOr<std::unique_ptr<const PreparedWeights>> PrepareWeights(
      const ConvShape& shape, const ConstTensorView& weights,
      const ExecutionContext& context) const;

  // Plans a pass over a map that was prepared for NeededMap(pass, shape). Books all scratch memory.
  // Queues no work. Does not synchronise the stream. kInvalidArgument for a shape without channels,
  // for a shape whose number of offsets is not the map's, and for a map in another layout.
  // kUnimplemented gives the reason why a shape is not supported.
  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(Pass pass, const PreparedMap& map,
                                                     const ConvShape& shape,
                                                     const ExecutionContext& context) const;

  // Each of these runs the pass of its name. `plan` was made for that pass and for `map`, and
  // `workspace` was granted for plan.booking(). The work is queued on the context's stream. These
  // functions do not synchronise the stream, unless a profile is given and only the device knows a
  // counter. They record the dataflow's stages and counters. kInvalidArgument for a plan of another
  // pass; for a tensor that does not fit, the message gives its name, its value and what is
  // allowed.
  absl::Status Forward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const;
  absl::Status InputGrad(const DataflowPlan& plan, const PreparedMap& map,
                         const InputGradArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const;
  absl::Status WeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                          const WeightGradArgs& args, const Workspace& workspace,
                          const ExecutionContext& context) const;

  // Whether the plugin pools in its own way, in every mode and every dtype of the backend's dense
  // operators. Results are bitwise the same in every run.
  bool pools() const { return Pools(); }
  // The map that Pool (kForward) or Unpool (kInputGrad) reads, for a layer whose map is symmetric
  // or not. O(1). Queues no work.
  MapNeed NeededPoolMap(Pass pass, bool symmetric) const;
  // The operators of the arguments' names over a map that was prepared for NeededPoolMap. They need
  // no plan, and take temporary memory from the backend. Queued on the context's stream; they do
  // not synchronise it. They record the dataflow's stages. kInvalidArgument names a tensor that
  // does not fit, a mode without switches that has some, and max unpooling without them.
  absl::Status Pool(const PreparedMap& map, const PoolArgs& args,
                    const ExecutionContext& context) const;
  absl::Status Unpool(const PreparedMap& map, const UnpoolArgs& args,
                      const ExecutionContext& context) const;

 private:
  Capability AskCapability(Pass pass, const ConvShape& shape) const;
  MapNeed AskNeed(Pass pass, const ConvShape& shape) const;

 protected:
  // Whether the plugin computes the pass itself. Must be true for kForward. The Do... methods are
  // called for these passes alone.
  virtual bool Has(Pass pass) const { return pass == Pass::kForward; }
  virtual Capability DoCapability(Pass pass, const ConvShape& shape) const = 0;
  virtual MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const = 0;
  // Makes the layout `need.layout` of `map`, whose sizes were checked. Called only for needs with a
  // layout. Allocates what the layout keeps. The default refuses.
  virtual absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const;
  // Makes the layout of weights that most plans for `shape` read, or returns null, as the default
  // does. The shape is supported, and the weights fit it.
  virtual absl::StatusOr<std::unique_ptr<PreparedWeights>> DoPrepareWeights(
      const ConvShape& shape, const ConstTensorView& weights,
      const ExecutionContext& context) const;
  virtual absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const = 0;
  virtual absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map,
                                 const ForwardArgs& args, const Workspace& workspace,
                                 const ExecutionContext& context) const = 0;
  virtual absl::Status DoInputGrad(const DataflowPlan& plan, const PreparedMap& map,
                                   const InputGradArgs& args, const Workspace& workspace,
                                   const ExecutionContext& context) const;
  virtual absl::Status DoWeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                                    const WeightGradArgs& args, const Workspace& workspace,
                                    const ExecutionContext& context) const;

  // Whether the plugin overrides the three methods below, which are called only then. The map of a
  // need with a layout comes from DoPrepare. The arguments were checked.
  virtual bool Pools() const { return false; }
  virtual MapNeed DoNeededPoolMap(Pass pass, bool symmetric) const;
  virtual absl::Status DoPool(const PreparedMap& map, const PoolArgs& args,
                              const ExecutionContext& context) const;
  virtual absl::Status DoUnpool(const PreparedMap& map, const UnpoolArgs& args,
                                const ExecutionContext& context) const;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_DATAFLOW_H_
