// SPDX-License-Identifier: Apache-2.0
#include "tests/saboteurs/wrapped_dataflow.h"

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "tests/saboteurs/wrapped_family.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/convolution.h"

namespace voxconv::testing {
namespace {

// To nearest, ties to even, with the 10 bits of mantissa that tf32 has.
float RoundedToTf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

// What the tensor cores would multiply, as f32.
absl::StatusOr<Tensor> Operand(const ConstTensorView& view, Precision precision,
                               const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(std::vector<float> values, ToHost(view, context));
  if (precision == Precision::kTf32) {
    for (float& value : values) value = RoundedToTf32(value);
  }
  return Tensor::FromHost(values, view.rows, view.channels, context);
}

class WrappedPlan final : public DataflowPlan {
 public:
  explicit WrappedPlan(std::unique_ptr<DataflowPlan> right) : right_(std::move(right)) {
    booking_ = right_->booking();
    stale_slot_ = booking_.Book(kStaleBytes);
  }
  const DataflowPlan& right() const { return *right_; }
  int stale_slot() const { return stale_slot_; }

 private:
  std::unique_ptr<DataflowPlan> right_;
  int stale_slot_;
};

class WrappedDataflow final : public Dataflow {
 public:
  // `emulates`: `right` computes in f32 alone. The precisions are emulated around it.
  WrappedDataflow(Options options, std::unique_ptr<const Dataflow> right, bool emulates,
                  DataflowFault fault, GradFault grad_fault)
      : options_(std::move(options)),
        right_(std::move(right)),
        emulates_(emulates),
        fault_(std::move(fault)),
        grad_fault_(std::move(grad_fault)) {}

  const Options& options() const override { return options_; }

 protected:
  bool Has(Pass) const override { return true; }
  Capability DoCapability(Pass pass, const ConvShape& shape) const override {
    Capability capability = right_->CapabilityOf(pass, ShapeOfRight(shape));
    if (!emulates_) return capability;
    if (capability.support.ok) capability.support = UniformTypes("wrapped", shape);
    // What is emulated is summed in f32 and rounded once.
    capability.fuses_epilogue = false;
    capability.rounds_partial_sums = false;
    return capability;
  }
  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override {
    return right_->NeededMap(pass, ShapeOfRight(shape));
  }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const override {
    return right_->Prepare(map, need, context);
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(auto plan, right_->Plan(pass, map, ShapeOfRight(shape), context));
    return std::make_unique<WrappedPlan>(std::move(plan));
  }
  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& own = static_cast<const WrappedPlan&>(plan);
    const Precision precision = plan.shape().types.precision;
    ConvCall call{.input = args.input,
                  .weights = args.weights,
                  .output = args.output,
                  .map = &map,
                  .stale = workspace.Get<char>(own.stale_slot()),
                  .context = context};
    call.right = [&](const ConvCall& changed) {
      ForwardArgs changed_args = args;
      changed_args.input = changed.input;
      changed_args.weights = changed.weights;
      changed_args.output = changed.output;
      // Other weights may still be on their way.
      changed_args.settled = args.settled && changed.weights.data == args.weights.data;
      if (changed.other_map != nullptr) {
        return RunAnew(own.right().shape(), *changed.other_map, precision, changed_args, context);
      }
      return Run(own.right(), map, precision, changed_args, workspace, context);
    };
    return fault_(std::move(call));
  }
  absl::Status DoInputGrad(const DataflowPlan& plan, const PreparedMap& map,
                           const InputGradArgs& args, const Workspace& workspace,
                           const ExecutionContext& context) const override {
    const auto right = [&](const GradCall& call) {
      const auto run = [&](const ConstTensorView& dy, const ConstTensorView& w,
                           const TensorView& dx) {
        return right_->InputGrad(RightOf(plan), map, {dy, w, dx}, workspace, context);
      };
      return Emulate(PrecisionOf(plan), args.output_grad, call.weights, args.input_grad, run,
                     context);
    };
    return grad_fault_({.what = GradCall::What::kInputGrad,
                        .weights = args.weights,
                        .num_offsets = map.map().num_offsets(),
                        .result = args.input_grad,
                        .context = context,
                        .right = right});
  }
  absl::Status DoWeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                            const WeightGradArgs& args, const Workspace& workspace,
                            const ExecutionContext& context) const override {
    const auto right = [&](const GradCall&) {
      const auto run = [&](const ConstTensorView& x, const ConstTensorView& dy,
                           const TensorView& dw) {
        return right_->WeightGrad(RightOf(plan), map, {x, dy, dw}, workspace, context);
      };
      return Emulate(PrecisionOf(plan), args.input, args.output_grad, args.weights_grad, run,
                     context);
    };
    return Faulty(GradCall::What::kWeightGrad, map, args.weights_grad, right, context);
  }
  bool Pools() const override { return right_->pools(); }
  MapNeed DoNeededPoolMap(Pass pass, bool symmetric) const override {
    return right_->NeededPoolMap(pass, symmetric);
  }
  absl::Status DoPool(const PreparedMap& map, const PoolArgs& args,
                      const ExecutionContext& context) const override {
    const auto right = [&](const GradCall&) { return right_->Pool(map, args, context); };
    return Faulty(GradCall::What::kPool, map, args.output, right, context);
  }
  absl::Status DoUnpool(const PreparedMap& map, const UnpoolArgs& args,
                        const ExecutionContext& context) const override {
    const auto right = [&](const GradCall&) { return right_->Unpool(map, args, context); };
    return Faulty(GradCall::What::kUnpool, map, args.output, right, context);
  }

 private:
  // With the fault, what reads no weights.
  absl::Status Faulty(GradCall::What what, const PreparedMap& map, const TensorView& result,
                      std::function<absl::Status(const GradCall&)> right,
                      const ExecutionContext& context) const {
    return grad_fault_({.what = what,
                        .num_offsets = map.map().num_offsets(),
                        .result = result,
                        .context = context,
                        .right = std::move(right)});
  }

  static const DataflowPlan& RightOf(const DataflowPlan& plan) {
    return static_cast<const WrappedPlan&>(plan).right();
  }

  ConvShape ShapeOfRight(ConvShape shape) const {
    if (emulates_) shape.types = ConvTypes();
    return shape;
  }

  static Precision PrecisionOf(const DataflowPlan& plan) { return plan.shape().types.precision; }

  // run(a, b, result) computes products of elements of `a` and `b`. Where `right` computes in f32
  // alone, it is given f32 of what the precision holds, and its result is rounded once.
  template <typename Call>
  absl::Status Emulate(Precision precision, const ConstTensorView& a, const ConstTensorView& b,
                       const TensorView& result, const Call& run,
                       const ExecutionContext& context) const {
    if (!emulates_ || precision == Precision::kF32) return run(a, b, result);
    VOXCONV_ASSIGN_OR_RETURN(const Tensor first, Operand(a, precision, context));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor second, Operand(b, precision, context));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor in_f32,
                             Tensor::Create(result.rows, result.channels, DType::kF32, context));
    VOXCONV_RETURN_IF_ERROR(run(first.view(), second.view(), in_f32.view()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> sums, in_f32.ToHost(context));
    return Overwrite(result, sums, context);
  }

  absl::Status Run(const DataflowPlan& plan, const PreparedMap& map, Precision precision,
                   const ForwardArgs& args, const Workspace& workspace,
                   const ExecutionContext& context) const {
    const auto run = [&](const ConstTensorView& input, const ConstTensorView& weights,
                         const TensorView& output) {
      ForwardArgs changed = args;
      changed.input = input;
      changed.weights = weights;
      changed.output = output;
      return right_->Forward(plan, map, changed, workspace, context);
    };
    return Emulate(precision, args.input, args.weights, args.output, run, context);
  }

  // With a map that no plan was made for.
  absl::Status RunAnew(ConvShape shape, const KernelMap& map, Precision precision, ForwardArgs args,
                       const ExecutionContext& context) const {
    shape.symmetric = map.symmetric();
    args.settled = false;
    VOXCONV_ASSIGN_OR_RETURN(const auto prepared,
                             PrepareMap(*right_, Pass::kForward, shape, map, context));
    VOXCONV_ASSIGN_OR_RETURN(const auto plan,
                             right_->Plan(Pass::kForward, *prepared, shape, context));
    Workspace workspace;
    VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
    VOXCONV_RETURN_IF_ERROR(Run(*plan, *prepared, precision, args, workspace, context));
    return context.stream->Synchronize();
  }

  Options options_;
  std::unique_ptr<const Dataflow> right_;
  bool emulates_;
  DataflowFault fault_;
  GradFault grad_fault_;
};

absl::Status RegisterBoth(const std::string& name, const Registry& right, const std::string& inner,
                          const DataflowFault& fault, const GradFault& grad_fault,
                          Registry& registry) {
  return RegisterWrappedIn(
      registry.dataflows(), right.dataflows(), name, inner,
      [fault, grad_fault](Options options, std::unique_ptr<const Dataflow> dataflow,
                          BackendKind kind) {
        return std::make_unique<WrappedDataflow>(std::move(options), std::move(dataflow),
                                                 /*emulates=*/kind == BackendKind::kCpu, fault,
                                                 grad_fault);
      });
}

}  // namespace

absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const DataflowFault& fault,
                             Registry& registry) {
  const GradFault none = [](const GradCall& call) { return call.RunRight(); };
  return RegisterBoth(name, right, inner, fault, none, registry);
}

absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const GradFault& fault, Registry& registry) {
  const DataflowFault none = [](const ConvCall& call) { return call.RunRight(); };
  return RegisterBoth(name, right, inner, none, fault, registry);
}

absl::Status Overwrite(const TensorView& view, const std::vector<float>& values,
                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tensor,
                           Tensor::FromHost(values, view.rows, view.channels, context, view.dtype));
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(view.data, view.device.space, tensor.view().data,
                                                tensor.view().device.space, view.bytes(),
                                                *context.stream));
  return context.stream->Synchronize();
}

}  // namespace voxconv::testing
