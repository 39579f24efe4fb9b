#include "tests/saboteurs/wrapped_dataflow.h"

#include <bit>
#include <memory>
#include <utility>
#include <vector>

namespace voxconv::testing {
namespace {

// To nearest, ties to even, with the 10 bits of mantissa that tf32 has.
float RoundedToTf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

// What the tensor cores would multiply, as f32.
absl::StatusOr<Tensor> Operand(const TensorView& view, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(std::vector<float> values, ToHost(view, context));
  if (view.dtype == DType::kTf32) {
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
  WrappedDataflow(Options options, std::unique_ptr<const Dataflow> right, DataflowFault fault)
      : options_(std::move(options)), right_(std::move(right)), fault_(std::move(fault)) {}

  const Options& options() const override { return options_; }
  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return right_->Supports(ShapeOfRight(shape, backend), backend);
  }
  bool deterministic(BackendKind backend) const override { return right_->deterministic(backend); }
  bool FusesEpilogue(BackendKind backend) const override {
    return backend != BackendKind::kCpu && right_->FusesEpilogue(backend);
  }
  // What emulates a dtype sums in f32 and rounds once.
  bool RoundsPartialSums(BackendKind backend) const override {
    return backend != BackendKind::kCpu && right_->RoundsPartialSums(backend);
  }
  LayoutRequest RequiredLayout(int num_offsets) const override {
    return right_->RequiredLayout(num_offsets);
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(
        auto plan, right_->Plan(map, ShapeOfRight(shape, context.backend->kind()), context));
    return std::make_unique<WrappedPlan>(std::move(plan));
  }
  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    const auto& own = static_cast<const WrappedPlan&>(plan);
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
      if (changed.map != &map) return RunAnew(*changed.map, changed_args, context);
      return Run(own.right(), map, changed_args, workspace, context);
    };
    return fault_(std::move(call));
  }

 private:
  static ConvShape ShapeOfRight(ConvShape shape, BackendKind backend) {
    if (backend == BackendKind::kCpu) shape.dtype = DType::kF32;
    return shape;
  }

  absl::Status Run(const DataflowPlan& plan, const KernelMap& map, ForwardArgs args,
                   const Workspace& workspace, const ExecutionContext& context) const {
    if (args.input.dtype == DType::kF32 || context.backend->kind() != BackendKind::kCpu) {
      return right_->Forward(plan, map, args, workspace, context);
    }
    VOXCONV_ASSIGN_OR_RETURN(const Tensor input, Operand(args.input, context));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor weights, Operand(args.weights, context));
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor output,
        Tensor::Create(args.output.rows, args.output.channels, DType::kF32, context));
    const TensorView to = args.output;
    args.input = input.view();
    args.weights = weights.view();
    args.output = output.view();
    VOXCONV_RETURN_IF_ERROR(right_->Forward(plan, map, args, workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> sums, output.ToHost(context));
    return Overwrite(to, sums, context);
  }

  // With a map that no plan was made for.
  absl::Status RunAnew(const KernelMap& map, const ForwardArgs& args,
                       const ExecutionContext& context) const {
    VOXCONV_ASSIGN_OR_RETURN(
        const KernelMap converted,
        context.backend->ConvertKernelMap(map, right_->RequiredLayout(map.num_offsets()), context));
    const ConvShape shape{args.input.channels, args.output.channels, args.input.dtype};
    VOXCONV_ASSIGN_OR_RETURN(
        const auto plan,
        right_->Plan(converted, ShapeOfRight(shape, context.backend->kind()), context));
    Workspace workspace;
    VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
    VOXCONV_RETURN_IF_ERROR(Run(*plan, converted, args, workspace, context));
    return context.stream->Synchronize();
  }

  Options options_;
  std::unique_ptr<const Dataflow> right_;
  DataflowFault fault_;
};

}  // namespace

absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const DataflowFault& fault,
                             Registry& registry) {
  return registry.dataflows().Register(
      {.name = name, .summary = "for tests"},
      [&right, inner, fault](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        VOXCONV_ASSIGN_OR_RETURN(auto dataflow, right.dataflows().Create(inner));
        return std::make_unique<WrappedDataflow>(std::move(options), std::move(dataflow), fault);
      });
}

absl::Status Overwrite(const TensorView& view, const std::vector<float>& values,
                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tensor,
                           Tensor::FromHost(values, view.rows, view.channels, context, view.dtype));
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(view.data, view.space, tensor.view().data,
                                                tensor.view().space, view.bytes(),
                                                *context.stream));
  return context.stream->Synchronize();
}

}  // namespace voxconv::testing
