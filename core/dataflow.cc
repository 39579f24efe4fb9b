// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/dataflow.h"

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

// kInputGrad as a forward pass: the plan of that pass, and room for its weights behind its
// workspace.
class ForwardAsInputGrad final : public DataflowPlan {
 public:
  ForwardAsInputGrad(std::unique_ptr<DataflowPlan> forward, const ConvShape& shape)
      : forward_(std::move(forward)) {
    booking_ = forward_->booking();
    kernel_ = forward_->kernel();
    const int64_t elements = int64_t{shape.num_offsets} * shape.c_in * shape.c_out;
    weights_slot_ = booking_.Book(elements * SizeOf(shape.types.weights));
  }
  const DataflowPlan& forward() const { return *forward_; }
  int weights_slot() const { return weights_slot_; }

 private:
  std::unique_ptr<DataflowPlan> forward_;
  int weights_slot_ = 0;
};

// kWeightGrad by TensorOps needs no plan.
class EmptyPlan final : public DataflowPlan {};

absl::Status CheckChannels(const ConvShape& shape) {
  if (shape.c_in >= 1 && shape.c_out >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dataflow: ", shape.c_in, " input and ",
                                                 shape.c_out,
                                                 " output channels; at least 1 of each is needed"));
}

absl::Status CheckPlanned(const DataflowPlan& plan, Pass pass) {
  if (plan.pass() == pass) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dataflow: the plan is for ", ToString(plan.pass()), ", the call for ", ToString(pass)));
}

absl::Status CheckEpilogue(const Epilogue& epilogue, const ForwardArgs& args,
                           const Device& device) {
  if (epilogue.residual.data == nullptr) return absl::OkStatus();
  return CheckTensor("residual", epilogue.residual, args.output.rows, args.output.channels,
                     args.output.dtype, device);
}

absl::Status CheckPrepared(const PreparedWeights& weights, const ConvShape& shape) {
  ConvShape made_for = weights.shape();
  made_for.symmetric = shape.symmetric;  // a property of the map alone
  if (made_for == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prepared_weights: made for ", made_for.num_offsets, " offsets, ", made_for.c_in,
                   " -> ", made_for.c_out, " channels in ", ToString(made_for.types.precision),
                   "; the plan has ", shape.num_offsets, ", ", shape.c_in, " -> ", shape.c_out,
                   " in ", ToString(shape.types.precision)));
}

// In place.
absl::Status ApplyEpilogue(const Epilogue& epilogue, const TensorView& y,
                           const ExecutionContext& context) {
  if (epilogue.empty()) return absl::OkStatus();
  const StageScope stage(context, Stage::kEpilogue);
  TensorOps& ops = context.backend->tensor_ops();
  const bool adds = epilogue.residual.data != nullptr;
  if (epilogue.scale != nullptr || epilogue.shift != nullptr || !adds) {
    VOXCONV_RETURN_IF_ERROR(
        ops.ScaleShift(y, epilogue.scale, epilogue.shift, epilogue.relu && !adds, y, context));
  }
  if (!adds) return absl::OkStatus();
  return ops.Add(y, epilogue.residual, epilogue.relu, y, context);
}

void Count(const DataflowPlan& plan, const ExecutionContext& context) {
  if (Counters* counters = context.counters()) counters->Add(plan.work());
}

// The tensors of a layer by their names, in the pass's direction; see Pass.
struct LayerTensors {
  absl::string_view input_name, weights_name, output_name;
  ConstTensorView input, weights, output;
};

absl::Status CheckLayer(const LayerTensors& t, const ConvShape& shape, const KernelMap& map,
                        bool transposed, const Device& device, bool strided = false) {
  const int64_t num_inputs = transposed ? map.num_outputs() : map.num_inputs();
  const int64_t num_outputs = transposed ? map.num_inputs() : map.num_outputs();
  VOXCONV_RETURN_IF_ERROR(CheckTensor(t.input_name, t.input, num_inputs, shape.c_in,
                                      shape.types.input, device, strided));
  VOXCONV_RETURN_IF_ERROR(CheckTensor(t.weights_name, t.weights, map.num_offsets() * shape.c_in,
                                      shape.c_out, shape.types.weights, device));
  return CheckTensor(t.output_name, t.output, num_outputs, shape.c_out, shape.types.output, device,
                     strided);
}

}  // namespace

absl::string_view ToString(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kInputGrad:
      return "input_grad";
    case Pass::kWeightGrad:
      return "weight_grad";
  }
  return "?";
}

ConvTypes ConvTypes::Of(Precision precision) {
  const DType dtype = StorageOf(precision);
  return {dtype, dtype, dtype, precision, DType::kF32};
}

bool ConvTypes::IsUniform() const {
  return input == weights && weights == output && accumulate == DType::kF32;
}

ConvShape ConvShape::Transposed() const {
  ConvShape shape = *this;
  std::swap(shape.c_in, shape.c_out);
  std::swap(shape.types.input, shape.types.output);
  return shape;
}

absl::StatusOr<KernelMap> PreparedMap::ToPairs(const ExecutionContext& context) const {
  return context.backend->map_ops().To(MapForm::kPairs, map_, context);
}

Capability Dataflow::CapabilityOf(Pass pass, const ConvShape& shape) const {
  const absl::StatusOr<Capability> capability =
      CallPlugin(*this, "DoCapability",
                 [&]() -> absl::StatusOr<Capability> { return AskCapability(pass, shape); });
  if (capability.ok()) return *capability;
  return {.support = Support::Failed(std::string(capability.status().message()))};
}

MapNeed Dataflow::NeededMap(Pass pass, const ConvShape& shape) const {
  const absl::StatusOr<MapNeed> need = CallPlugin(
      *this, "DoNeededMap", [&]() -> absl::StatusOr<MapNeed> { return AskNeed(pass, shape); });
  if (need.ok()) return *need;
  return {.error = std::string(need.status().message())};
}

Capability Dataflow::AskCapability(Pass pass, const ConvShape& shape) const {
  if (Has(pass)) return DoCapability(pass, shape);
  ConvShape forward = pass == Pass::kInputGrad ? shape.Transposed() : shape;
  // TensorOps::WeightGradient stores gradients in f32 beside 16-bit features.
  if (pass == Pass::kWeightGrad && forward.types.weights == DType::kF32) {
    forward.types.weights = forward.types.input;
  }
  Capability capability = DoCapability(Pass::kForward, forward);
  if (capability.support.ok && capability.forward_only) {
    capability.support = Support::No(absl::StrCat(
        "no gradients in ", ToString(shape.types.precision), ": the forward pass alone has it"));
  }
  capability.fuses_epilogue = false;
  if (pass == Pass::kWeightGrad) {  // another's product, in a fixed order
    capability.deterministic = true;
    capability.rounds_partial_sums = false;
  }
  return capability;
}

MapNeed Dataflow::AskNeed(Pass pass, const ConvShape& shape) const {
  if (Has(pass)) return DoNeededMap(pass, shape);
  if (pass == Pass::kWeightGrad) return {.form = MapForm::kPairs};
  MapNeed need = DoNeededMap(Pass::kForward, shape.Transposed());
  if (!shape.symmetric) need.transposed = !need.transposed;
  return need;
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> Dataflow::Prepare(
    const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const {
  if (!need.error.empty()) return absl::InternalError(need.error);
  if (map.form() != need.form) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dataflow: a map of the form ", ToString(map.form()), "; it takes ", ToString(need.form)));
  }
  if (need.layout.empty()) return std::make_shared<const PreparedMap>(map);
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());  // layouts are made by the sizes
  const StageScope stage(context, Stage::kConvert);
  return CallPluginForPointer(*this, "DoPrepare", [&] { return DoPrepare(map, need, context); });
}

absl::StatusOr<std::unique_ptr<const PreparedWeights>> Dataflow::PrepareWeights(
    const ConvShape& shape, const ConstTensorView& weights, const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(CheckChannels(shape));
  VOXCONV_RETURN_IF_ERROR(Supports(Pass::kForward, shape).ToStatus("dataflow"));
  VOXCONV_RETURN_IF_ERROR(CheckTensor("weights", weights, int64_t{shape.num_offsets} * shape.c_in,
                                      shape.c_out, shape.types.weights, context.backend->device()));
  if (shape.num_offsets == 0) return nullptr;
  const StageScope stage(context, Stage::kConvert);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<PreparedWeights> prepared,
                           CallPlugin(*this, "DoPrepareWeights",
                                      [&]() -> absl::StatusOr<std::unique_ptr<PreparedWeights>> {
                                        return DoPrepareWeights(shape, weights, context);
                                      }));
  if (prepared != nullptr) prepared->shape_ = shape;
  return prepared;
}

absl::StatusOr<std::unique_ptr<DataflowPlan>> Dataflow::Plan(
    Pass pass, const PreparedMap& map, const ConvShape& shape,
    const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(CheckChannels(shape));
  if (shape.num_offsets != map.map().num_offsets()) {
    return absl::InvalidArgumentError(absl::StrCat("dataflow: a shape of ", shape.num_offsets,
                                                   " offsets; the map has ",
                                                   map.map().num_offsets()));
  }
  const Capability capability = CapabilityOf(pass, shape);
  VOXCONV_RETURN_IF_ERROR(capability.support.ToStatus("dataflow"));
  std::unique_ptr<DataflowPlan> plan;
  if (Has(pass)) {
    VOXCONV_ASSIGN_OR_RETURN(plan, CallPluginForPointer(*this, "DoPlan", [&] {
                               return DoPlan(pass, map, shape, context);
                             }));
  } else if (pass == Pass::kInputGrad) {
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<DataflowPlan> forward,
                             Plan(Pass::kForward, map, shape.Transposed(), context));
    plan = std::make_unique<ForwardAsInputGrad>(std::move(forward), shape);
  } else {
    plan = std::make_unique<EmptyPlan>();
  }
  plan->pass_ = pass;
  plan->shape_ = shape;
  plan->capability_ = capability;
  return plan;
}

absl::Status Dataflow::Forward(const DataflowPlan& plan, const PreparedMap& map,
                               const ForwardArgs& args, const Workspace& workspace,
                               const ExecutionContext& context) const {
  const Device device = context.backend->device();
  VOXCONV_RETURN_IF_ERROR(CheckPlanned(plan, Pass::kForward));
  VOXCONV_RETURN_IF_ERROR(
      CheckLayer({"features", "weights", "output", args.input, args.weights, args.output},
                 plan.shape(), map.map(), /*transposed=*/false, device,
                 plan.capability().fuses_epilogue && plan.capability().strides_rows));
  VOXCONV_RETURN_IF_ERROR(CheckEpilogue(args.epilogue, args, device));
  ForwardArgs own = args;
  if (args.prepared_weights != nullptr) {
    VOXCONV_RETURN_IF_ERROR(CheckPrepared(*args.prepared_weights, plan.shape()));
    const std::string& layout = plan.weights_layout();
    if (layout.empty() || args.prepared_weights->layout() != layout) own.prepared_weights = nullptr;
  }
  const bool fuses = plan.capability().fuses_epilogue;
  if (!fuses) own.epilogue = Epilogue();
  VOXCONV_RETURN_IF_ERROR(CallPlugin(
      *this, "DoForward", [&] { return DoForward(plan, map, own, workspace, context); }));
  Count(plan, context);
  return fuses ? absl::OkStatus() : ApplyEpilogue(args.epilogue, args.output, context);
}

absl::Status Dataflow::InputGrad(const DataflowPlan& plan, const PreparedMap& map,
                                 const InputGradArgs& args, const Workspace& workspace,
                                 const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(CheckPlanned(plan, Pass::kInputGrad));
  const ConvShape& shape = plan.shape();
  const bool transposed = NeededMap(Pass::kInputGrad, shape).transposed;
  VOXCONV_RETURN_IF_ERROR(CheckLayer(
      {"input_grad", "weights", "output_grad", args.input_grad, args.weights, args.output_grad},
      shape, map.map(), transposed, context.backend->device()));
  if (Has(Pass::kInputGrad)) {
    VOXCONV_RETURN_IF_ERROR(CallPlugin(
        *this, "DoInputGrad", [&] { return DoInputGrad(plan, map, args, workspace, context); }));
    Count(plan, context);
    return absl::OkStatus();
  }
  const auto& own = static_cast<const ForwardAsInputGrad&>(plan);
  const TensorView weights{workspace.Get<void>(own.weights_slot()),
                           int64_t{shape.num_offsets} * shape.c_out,
                           shape.c_in,
                           shape.types.weights,
                           context.backend->device(),
                           shape.c_in};
  {
    const StageScope stage(context, Stage::kConvert);
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().TransposeWeights(
        args.weights, shape.num_offsets, /*reversed=*/!transposed, weights, context));
  }
  return Forward(own.forward(), map, {args.output_grad, weights, args.input_grad}, workspace,
                 context);
}

absl::Status Dataflow::WeightGrad(const DataflowPlan& plan, const PreparedMap& map,
                                  const WeightGradArgs& args, const Workspace& workspace,
                                  const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(CheckPlanned(plan, Pass::kWeightGrad));
  const ConvShape& shape = plan.shape();
  const bool transposed = NeededMap(Pass::kWeightGrad, shape).transposed;
  VOXCONV_RETURN_IF_ERROR(CheckLayer(
      {"features", "weights_grad", "output_grad", args.input, args.weights_grad, args.output_grad},
      shape, map.map(), transposed, context.backend->device()));
  if (Has(Pass::kWeightGrad)) {
    VOXCONV_RETURN_IF_ERROR(CallPlugin(
        *this, "DoWeightGrad", [&] { return DoWeightGrad(plan, map, args, workspace, context); }));
    Count(plan, context);
    return absl::OkStatus();
  }
  const StageScope stage(context, Stage::kGemm);
  return context.backend->tensor_ops().WeightGradient(
      map.map(), args.input, args.output_grad, shape.types.precision, args.weights_grad, context);
}

MapNeed Dataflow::NeededPoolMap(Pass pass, bool symmetric) const {
  if (!Pools()) return {.form = MapForm::kPairs};
  const absl::StatusOr<MapNeed> need =
      CallPlugin(*this, "DoNeededPoolMap",
                 [&]() -> absl::StatusOr<MapNeed> { return DoNeededPoolMap(pass, symmetric); });
  if (need.ok()) return *need;
  return {.error = std::string(need.status().message())};
}

absl::Status Dataflow::Pool(const PreparedMap& map, const PoolArgs& args,
                            const ExecutionContext& context) const {
  if (!Pools()) {
    const StageScope stage(context, Stage::kDense);
    return context.backend->tensor_ops().Pool(map.map(), args.mode, args.input, args.output,
                                              args.switches, context);
  }
  VOXCONV_RETURN_IF_ERROR(CheckPoolTensors(map.map(), args.mode, args.input, args.output,
                                           args.switches, *context.backend));
  return CallPlugin(*this, "DoPool", [&] { return DoPool(map, args, context); });
}

absl::Status Dataflow::Unpool(const PreparedMap& map, const UnpoolArgs& args,
                              const ExecutionContext& context) const {
  if (!Pools()) {
    const StageScope stage(context, Stage::kDense);
    return context.backend->tensor_ops().Unpool(map.map(), args.mode, args.input, args.switches,
                                                args.output, context);
  }
  VOXCONV_RETURN_IF_ERROR(CheckUnpoolTensors(map.map(), args.mode, args.input, args.switches,
                                             args.output, *context.backend));
  return CallPlugin(*this, "DoUnpool", [&] { return DoUnpool(map, args, context); });
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> Dataflow::DoPrepare(
    const KernelMap&, const MapNeed& need, const ExecutionContext&) const {
  return absl::InternalError(
      absl::StrCat(label(), ": it asks for the layout '", need.layout, "' and does not make it"));
}

absl::StatusOr<std::unique_ptr<PreparedWeights>> Dataflow::DoPrepareWeights(
    const ConvShape&, const ConstTensorView&, const ExecutionContext&) const {
  return nullptr;
}

absl::Status Dataflow::DoInputGrad(const DataflowPlan&, const PreparedMap&, const InputGradArgs&,
                                   const Workspace&, const ExecutionContext&) const {
  return absl::InternalError("dataflow: it claims an input gradient of its own and has none");
}

absl::Status Dataflow::DoWeightGrad(const DataflowPlan&, const PreparedMap&, const WeightGradArgs&,
                                    const Workspace&, const ExecutionContext&) const {
  return absl::InternalError("dataflow: it claims a weight gradient of its own and has none");
}

MapNeed Dataflow::DoNeededPoolMap(Pass, bool) const {
  return {.error = "dataflow: it claims a pooling of its own and says no map"};
}

absl::Status Dataflow::DoPool(const PreparedMap&, const PoolArgs&, const ExecutionContext&) const {
  return absl::InternalError("dataflow: it claims a pooling of its own and has none");
}

absl::Status Dataflow::DoUnpool(const PreparedMap&, const UnpoolArgs&,
                                const ExecutionContext&) const {
  return absl::InternalError("dataflow: it claims an unpooling of its own and has none");
}

}  // namespace voxconv
