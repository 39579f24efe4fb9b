// Dataflow plugins: how features are multiplied once the kernel map is known.
#ifndef VOXCONV_CORE_DATAFLOW_H_
#define VOXCONV_CORE_DATAFLOW_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/kernel_map.h"
#include "core/plugin.h"
#include "core/tensor.h"
#include "core/workspace.h"

namespace voxconv {

struct ConvShape {
  int64_t c_in = 0;
  int64_t c_out = 0;
  DType dtype = DType::kF32;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

// Host-side schedule for one map and shape: groups, tiles, workspace slots. Immutable; may be used
// for any number of Forward calls with that map.
class DataflowPlan {
 public:
  virtual ~DataflowPlan() = default;

  const WorkspaceBooking& booking() const { return booking_; }

 protected:
  WorkspaceBooking booking_;
};

// What a layer does to its sum before it is stored:
// y = sum * scale + shift per channel, + residual, then max(y, 0). All in f32, rounded once.
struct Epilogue {
  const float* scale = nullptr;  // [C_out] in the backend's memory; null is 1
  const float* shift = nullptr;  // likewise; null is 0
  // [N_out, C_out] in the output's dtype; null data: none. May be the output itself.
  TensorView residual;
  bool relu = false;

  bool empty() const {
    return scale == nullptr && shift == nullptr && residual.data == nullptr && !relu;
  }
};

struct ForwardArgs {
  TensorView input;    // [N_in, C_in]
  TensorView weights;  // [K * C_in, C_out]: offset k's matrix is rows [k * C_in, (k + 1) * C_in)
  TensorView output;   // [N_out, C_out]; overwritten entirely, uninitialised before
  Epilogue epilogue;   // empty unless FusesEpilogue()
  // Whether the map, the weights and the epilogue's vectors are complete before anything that is
  // queued on the stream from now on can start, even if it starts before what precedes it has
  // ended.
  bool settled = false;
};

struct BackwardInputArgs {
  TensorView output_grad;  // [N_out, C_out]
  TensorView weights;      // [K * C_in, C_out]
  TensorView input_grad;   // [N_in, C_in]; overwritten
};

struct BackwardWeightArgs {
  TensorView input;         // [N_in, C_in]
  TensorView output_grad;   // [N_out, C_out]
  TensorView weights_grad;  // [K * C_in, C_out]; overwritten
};

// output[q] = sum over pairs (p, q, k) of input[p] * weights[k]. Stateless and const. No method
// throws, and a plan that comes with an OK status is not null.
class Dataflow {
 public:
  virtual ~Dataflow() = default;

  virtual const Options& options() const = 0;
  virtual Support Supports(const ConvShape& shape, BackendKind backend) const = 0;
  // Bitwise the same output for the same arguments, whatever the run and the thread count.
  virtual bool deterministic(BackendKind backend) const = 0;
  // Whether Forward applies ForwardArgs::epilogue; otherwise callers run it afterwards.
  virtual bool FusesEpilogue(BackendKind) const { return false; }
  // Whether Forward stores input[p] * weights[k] of each pair in the dtype of the features before
  // it sums them up in f32. The bounds of verify then allow one more rounding a pair.
  virtual bool RoundsPartialSums(BackendKind) const { return false; }
  // The layout that Plan and Forward take for a map of `num_offsets` offsets.
  virtual LayoutRequest RequiredLayout(int num_offsets) const = 0;

  // `map` has RequiredLayout(). Books all scratch; queues no work.
  virtual absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape, const ExecutionContext& context) const = 0;

  // `workspace` was granted for plan.booking(). Queued on context.stream. Records its stages and
  // counters (true_pairs, padded_pairs, bytes, launches).
  virtual absl::Status Forward(const DataflowPlan& plan, const KernelMap& map,
                               const ForwardArgs& args, const Workspace& workspace,
                               const ExecutionContext& context) const = 0;

  virtual absl::Status BackwardInput(const DataflowPlan& plan, const KernelMap& map,
                                     const BackwardInputArgs& args, const Workspace& workspace,
                                     const ExecutionContext& context) const;
  virtual absl::Status BackwardWeight(const DataflowPlan& plan, const KernelMap& map,
                                      const BackwardWeightArgs& args, const Workspace& workspace,
                                      const ExecutionContext& context) const;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_DATAFLOW_H_
