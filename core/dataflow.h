// Dataflow plugins: how features are multiplied once the kernel map is known.
#ifndef VOXCONV_CORE_DATAFLOW_H_
#define VOXCONV_CORE_DATAFLOW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/kernel_map.h"
#include "core/plugin.h"
#include "core/tensor.h"
#include "core/workspace.h"

namespace voxconv {

// What a convolution layer computes. For the pairs (p, q, k) of its map:
//   kForward:     y[q] = sum of x[p] * w[k]
//   kInputGrad:   dx[p] = sum of dy[q] * transposed(w[k])
//   kWeightGrad:  dw[k] = sum of transposed(x[p]) * dy[q]
// (H-CNN, Equations 7 and 8.)
enum class Pass { kForward, kInputGrad, kWeightGrad };
inline constexpr Pass kAllPasses[] = {Pass::kForward, Pass::kInputGrad, Pass::kWeightGrad};
absl::string_view ToString(Pass pass);  // "forward", "input_grad", "weight_grad"

// Of one convolution: what its tensors are stored as, and how products and sums are computed.
struct ConvTypes {
  DType input = DType::kF32;              // x and dx
  DType weights = DType::kF32;            // w and dw
  DType output = DType::kF32;             // y and dy
  Precision precision = Precision::kF32;  // of the factors of products
  DType accumulate = DType::kF32;         // of sums

  // All tensors as StorageOf(precision), sums in f32.
  static ConvTypes Of(Precision precision);
  // All three tensors are stored as `dtype`, sums are f32.
  bool IsUniform() const;
  friend bool operator==(const ConvTypes&, const ConvTypes&) = default;
};

// Sizes are those of the layer, whatever the pass: x is [N_in, c_in] and y is [N_out, c_out].
struct ConvShape {
  int64_t c_in = 0;
  int64_t c_out = 0;
  int num_offsets = 0;     // K
  bool symmetric = false;  // KernelMap::symmetric
  ConvTypes types;

  // Of the convolution that computes the input gradient as a forward pass: inputs and outputs are
  // exchanged.
  ConvShape Transposed() const;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

// What a dataflow can do in one pass for one shape.
struct Capability {
  Support support;
  // The result is bitwise the same for the same arguments, in every run and with every number of
  // threads.
  bool deterministic = true;
  // kForward only: DoForward applies ForwardArgs::epilogue. Otherwise it is applied afterwards.
  bool fuses_epilogue = false;
  // The products of each kernel offset are rounded to the output's dtype before they are summed.
  bool rounds_partial_sums = false;
};

// The map that a pass wants to read.
struct MapNeed {
  // The pass runs over the map with inputs and outputs exchanged.
  bool transposed = false;
  // What DoPrepare is given, or the pass itself where `layout` is empty.
  MapForm form = MapForm::kPairs;
  // The key of the layout that the dataflow makes of it, such as "mask_sorted:order=rarest". Two
  // needs with the same key, form and direction share one prepared map among all layers that run
  // with the same plugin. Empty: the pass reads the form itself.
  std::string layout = {};
  friend bool operator==(const MapNeed&, const MapNeed&) = default;
};

// A map as a dataflow reads it: in one of its two forms, or with a layout of the dataflow's own in
// a derived class. Immutable. Serves any number of plans and passes.
class PreparedMap {
 public:
  explicit PreparedMap(KernelMap map) : map_(std::move(map)) {}
  virtual ~PreparedMap() = default;

  // Sizes, counts and flags, and the arrays that the layout keeps of the map that it was made of. A
  // layout that needs no arrays keeps KernelMap::WithoutArrays.
  const KernelMap& map() const { return map_; }
  // Bytes of all arrays that the layout keeps, those of map() included.
  virtual int64_t bytes() const { return map_.bytes(); }
  // Checks every invariant of the layout on a host copy, for tests. Synchronises the stream.
  virtual absl::Status Validate(const ExecutionContext& context) const {
    return map_.Validate(context);
  }
  // The canonical pairs, read off the layout alone, for tests.
  virtual absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const;

 private:
  KernelMap map_;
};

// The schedule of one pass for one map and shape, on the host: groups, tiles, workspace slots.
// Immutable. Serves any number of runs of that pass.
class DataflowPlan {
 public:
  virtual ~DataflowPlan() = default;

  const WorkspaceBooking& booking() const { return booking_; }
  // What a run adds to the profile's counters, where the plan knows it.
  const Counters& work() const { return work_; }

  // What it was made for. Set by Dataflow::Plan.
  Pass pass() const { return pass_; }
  const ConvShape& shape() const { return shape_; }
  const Capability& capability() const { return capability_; }

 protected:
  WorkspaceBooking booking_;
  Counters work_;

 private:
  friend class Dataflow;
  Pass pass_ = Pass::kForward;
  ConvShape shape_;
  Capability capability_;
};

// What a layer does to its sum before it is stored:
// y = sum * scale + shift per channel, + residual, then max(y, 0). All in f32, rounded once.
struct Epilogue {
  const float* scale = nullptr;  // [C_out] in the backend's memory; null is 1
  const float* shift = nullptr;  // [C_out] in the backend's memory; null is 0
  // [N_out, C_out] in the output's dtype. Null data: none. May be the output itself.
  ConstTensorView residual;
  bool relu = false;

  bool empty() const {
    return scale == nullptr && shift == nullptr && residual.data == nullptr && !relu;
  }
};

// Tensors are in the backend's memory, contiguous, and of the shape's dtypes. Results are
// overwritten entirely and overlap no argument.
struct ForwardArgs {
  ConstTensorView input;  // [N_in, C_in]
  ConstTensorView
      weights;        // [K * C_in, C_out]: offset k's matrix is rows [k * C_in, (k + 1) * C_in)
  TensorView output;  // [N_out, C_out]
  Epilogue epilogue;
  // The prepared map, the weights and the epilogue's vectors are complete, whatever runs on the
  // stream. A kernel may read them before the kernel in front of it has ended.
  bool settled = false;
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

// One way to compute convolutions on one kind of backend. Stateless and const: one instance serves
// any number of threads, streams and maps.
//
// Callers use the public methods, which check arguments, time conversions and count work. A plugin
// overrides the Do... methods, for kForward at least. Gradients that it does not compute itself are
// computed for it: kInputGrad by DoForward on the transposed map with transposed weights (on a
// symmetric map with the weights of offset K-1-k instead, and no second map), kWeightGrad by
// TensorOps::WeightGradient. No Do... method throws, and what it returns with OK is not null.
class Dataflow {
 public:
  virtual ~Dataflow() = default;

  virtual const Options& options() const = 0;

  // What the dataflow can do. O(1), queues no work.
  Capability CapabilityOf(Pass pass, const ConvShape& shape) const;
  Support Supports(Pass pass, const ConvShape& shape) const {
    return CapabilityOf(pass, shape).support;
  }
  // The map that the pass reads. The shape must be supported.
  MapNeed NeededMap(Pass pass, const ConvShape& shape) const;

  // Makes the layout `need.layout` of `map`, which has the form and direction of `need`. Records
  // Stage::kConvert. Queued on the context's stream.
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Prepare(const KernelMap& map,
                                                             const MapNeed& need,
                                                             const ExecutionContext& context) const;

  // Plans a pass over a map that was prepared for NeededMap(pass, shape). Books all scratch memory.
  // Queues no work. kUnimplemented gives the reason of a shape that is not supported.
  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(Pass pass, const PreparedMap& map,
                                                     const ConvShape& shape,
                                                     const ExecutionContext& context) const;

  // These run a pass with the plan and the map that it was made for, and a workspace that was
  // granted for plan.booking(). Queued on the context's stream; they do not synchronise it, unless
  // the profile has counters that only the device knows. They record the stages and counters of the
  // dataflow. kInvalidArgument names a tensor that does not fit.
  absl::Status Forward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const;
  absl::Status InputGrad(const DataflowPlan& plan, const PreparedMap& map,
                         const InputGradArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const;
  absl::Status WeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                          const WeightGradArgs& args, const Workspace& workspace,
                          const ExecutionContext& context) const;

 protected:
  // Whether the plugin computes the pass itself. The Do... methods are called for these passes
  // alone.
  virtual bool Has(Pass pass) const { return pass == Pass::kForward; }
  virtual Capability DoCapability(Pass pass, const ConvShape& shape) const = 0;
  virtual MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const = 0;
  // Called for needs with a layout. Books nothing; allocates what the layout keeps.
  virtual absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const;
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
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_DATAFLOW_H_
