// SPDX-License-Identifier: Apache-2.0
#include "traced_network.h"

#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "network.h"
#include "sparse_tensor.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/input_check.h"
#include "voxconv/training/forward_backward.h"

namespace voxconv::python {
namespace {

// One layer that Python lists.
class LayerRecord {
 public:
  explicit LayerRecord(nb::handle record) : record_(nb::borrow<nb::dict>(record)) {}

  bool Has(const char* key) const { return record_.contains(key); }
  std::string Text(const char* key) const { return nb::cast<std::string>(record_[key]); }
  int64_t Integer(const char* key) const { return nb::cast<int64_t>(record_[key]); }
  bool Flag(const char* key) const { return Has(key) && nb::cast<bool>(record_[key]); }
  double Number(const char* key) const { return nb::cast<double>(record_[key]); }
  Int3 Triple(const char* key, const Int3& otherwise) const {
    return Has(key) ? ToInt3(key, record_[key]) : otherwise;
  }
  std::vector<int64_t> Inputs() const {
    std::vector<int64_t> inputs;
    for (const nb::handle input : nb::cast<nb::list>(record_["inputs"])) {
      inputs.push_back(nb::cast<int64_t>(input));
    }
    return inputs;
  }

 private:
  nb::dict record_;
};

int AddConv(GraphBuilder& builder, const LayerRecord& layer, int x, const std::vector<int>& ids) {
  const std::string name = layer.Text("name"), kind = layer.Text("kind");
  const int64_t channels = layer.Integer("channels");
  if (kind == "inverse") {
    return builder.InverseConv(name, x, channels, ids.at(layer.Integer("counterpart")),
                               layer.Flag("bias"));
  }
  ConvOptions options{.kind = ValueOf(ParseConvKind(kind)), .bias = layer.Flag("bias")};
  if (layer.Has("rule")) options.rule = ValueOf(ParseOutputRule(layer.Text("rule")));
  options.kernel = layer.Triple("kernel", options.kernel);
  options.stride = layer.Triple("stride", options.stride);
  options.dilation = layer.Triple("dilation", options.dilation);
  options.padding = layer.Triple("padding", options.padding);
  return builder.Conv(name, x, channels, options);
}

PoolMode ToPoolMode(const std::string& text) {
  for (const PoolMode mode :
       {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    if (text == ToString(mode)) return mode;
  }
  ThrowValueError(absl::StrCat("mode '", text, "' is unknown"));
}

int AddPool(GraphBuilder& builder, const LayerRecord& layer, int x) {
  PoolOptions options{.mode = ToPoolMode(layer.Text("mode"))};
  options.rule = ValueOf(ParseOutputRule(layer.Text("rule")));
  options.kernel = layer.Triple("kernel", options.kernel);
  options.stride = layer.Triple("stride", options.stride);
  return builder.Pool(layer.Text("name"), x, options);
}

int AddLayer(GraphBuilder& builder, const LayerRecord& layer, const std::vector<int>& ids) {
  const std::string op = layer.Text("op"), name = layer.Text("name");
  const std::vector<int64_t> inputs = layer.Inputs();
  const auto input = [&](size_t which) { return ids.at(inputs.at(which)); };
  const bool relu = layer.Flag("relu");
  if (op == "input")
    return builder.Input(layer.Integer("channels"), layer.Triple("stride", {1, 1, 1}));
  if (op == "conv") return AddConv(builder, layer, input(0), ids);
  if (op == "batch_norm") return builder.BatchNorm(name, input(0), relu);
  if (op == "relu") return builder.Relu(name, input(0));
  if (op == "add") return builder.Add(name, input(0), input(1), relu);
  if (op == "concat") return builder.Concat(name, input(0), input(1));
  if (op == "linear") return builder.Linear(name, input(0), layer.Integer("channels"), relu);
  if (op == "pool") return AddPool(builder, layer, input(0));
  if (op == "dropout") return builder.Dropout(name, input(0), layer.Number("rate"));
  ThrowValueError(absl::StrCat("layer '", name, "': op '", op, "' is unknown"));
}

// ---- training

// What all steps of a network share, in the memory of one engine.
struct TrainedNetwork {
  std::unique_ptr<CompiledNetwork> network;
  std::vector<StepPlan> plans;
  ParameterStore parameters;
  SharedBatch shared;
};

// A step between its forward and its backward pass.
struct TrainingStep {
  std::shared_ptr<TrainedNetwork> of;
  MapStore maps;
  std::unique_ptr<ForwardBackward> passes;

  TrainingStep(std::shared_ptr<TrainedNetwork> network, Engine& engine)
      : of(std::move(network)), maps(*of->network) {
    passes = std::make_unique<ForwardBackward>(
        ForwardBackward::Parts{*of->network, of->plans, /*activation_limit=*/0, of->parameters,
                               maps, engine.workspace(), engine.backend(), of->shared});
  }
};

class PyTrainedNetwork;

class PyTrainingStep {
 public:
  using Step = std::unique_ptr<TrainingStep>;

  PyTrainingStep(const PySparseTensor& x, Step step)
      : input_(x), step_(Hold(x.engine(), std::move(step))) {}

  // A copy of the result, which the caller owns.
  PySparseTensor Output() const;
  // The gradients of all parameters, one after the other as TrainedNetwork lists them.
  nb::object Backward(nb::handle gradient);

 private:
  PySparseTensor input_;  // must live until the backward pass has run
  HeldPtr<Step> step_;
  bool done_ = false;
};

class PyTrainedNetwork {
 public:
  PyTrainedNetwork(const NetworkGraph& graph, EnginePtr engine, const LayerChoice& choice,
                   std::vector<PlannedLayer> plan, Precision precision);

  const EnginePtr& engine() const { return held_->engine(); }
  const NetworkGraph& graph() const { return network().network->graph; }
  TrainedNetwork& network() const { return ***held_; }

  PyTrainingStep Forward(const PySparseTensor& x, double momentum, uint64_t seed,
                         int64_t number) const;
  // By parameter: the array that the engine reads, f32 of the parameter's shape.
  nb::list Values(nb::handle like) const;
  // Where each trained parameter's gradient begins in what Backward returns; -1 for others.
  nb::list Places() const;

 private:
  HeldPtr<std::shared_ptr<TrainedNetwork>> held_;
};

PyTrainedNetwork::PyTrainedNetwork(const NetworkGraph& graph, EnginePtr engine,
                                   const LayerChoice& choice, std::vector<PlannedLayer> plan,
                                   Precision precision) {
  std::shared_ptr<const Planner> planner = std::make_shared<FixedPlanner>(choice);
  if (!plan.empty()) planner = std::make_shared<ListedPlanner>(std::move(plan), choice);
  const RunConfig config{.planner = std::move(planner),
                         .precision = precision,
                         .trains = true,
                         .profile_stages = false};
  const std::shared_ptr<const Registry> plugins = Plugins();
  using Made = std::shared_ptr<TrainedNetwork>;
  Made made = RunOn(*engine, [&](const ExecutionContext& context) -> absl::StatusOr<Made> {
    if (context.backend->training_ops() == nullptr) {
      return absl::UnimplementedError("this backend cannot train");
    }
    auto trained = std::make_shared<TrainedNetwork>();
    VOXCONV_ASSIGN_OR_RETURN(trained->network, CompileNetwork(graph, config, *plugins, context));
    trained->plans = PlansByMemory(trained->network->graph);
    VOXCONV_ASSIGN_OR_RETURN(
        trained->parameters,
        ParameterStore::Create(trained->network->graph, StorageOf(precision), context));
    trained->network->graph.ReleaseParameters();
    return trained;
  });
  held_ = Hold(std::move(engine), std::move(made));
}

PyTrainingStep PyTrainedNetwork::Forward(const PySparseTensor& x, double momentum, uint64_t seed,
                                         int64_t number) const {
  if (x.engine() != engine()) {
    ThrowValueError("x: lies on another device or stream than the network was made for");
  }
  if (x.matrix().rows == 0) ThrowValueError("x: 0 voxels; training needs at least 1");
  using Step = PyTrainingStep::Step;
  Step step = RunOn(*engine(), [&](const ExecutionContext& context) -> absl::StatusOr<Step> {
    VOXCONV_RETURN_IF_ERROR(CheckNetworkInput(*network().network, *context.backend, x.view()));
    VOXCONV_RETURN_IF_ERROR(network().parameters.StoreWeights(context));
    auto made = std::make_unique<TrainingStep>(**held_, *engine());
    VOXCONV_RETURN_IF_ERROR(made->passes->Forward(x.view(), momentum, {seed, number}));
    return made;
  });
  return {x, std::move(step)};
}

// `from`, copied to a new array of the framework of `like`.
nb::object CopyOut(const EnginePtr& engine, const ConstTensorView& from, nb::handle like) {
  const std::vector<int64_t> shape{from.rows, from.channels};
  std::optional<NewArray> made = NewArray::Create(*engine, shape, from.dtype, like);
  Tensor own = RunOn(*engine, [&](const ExecutionContext& context) -> absl::StatusOr<Tensor> {
    Tensor target;
    TensorView to = made.has_value() ? made->matrix : TensorView{};
    if (!made.has_value()) {
      VOXCONV_ASSIGN_OR_RETURN(target,
                               Tensor::Create(from.rows, from.channels, from.dtype, context));
      to = target.view();
    }
    const MemorySpace space = context.backend->device().space;
    VOXCONV_RETURN_IF_ERROR(
        context.backend->Copy(to.data, space, from.data, space, from.bytes(), *context.stream));
    return target;
  });
  if (made.has_value()) return std::move(made->object);
  return OutTensor(engine, std::move(own), shape, like);
}

PySparseTensor PyTrainingStep::Output() const {
  const ForwardBackward& passes = *(**step_)->passes;
  const EnginePtr& engine = step_->engine();
  const CoordinateSetPtr set = passes.output_coordinates();
  const bool same = set == input_.set();
  const InArray features("features", CopyOut(engine, passes.output(), input_.features()));
  return {same ? input_.set() : HoldSet(engine, set), features};
}

nb::object PyTrainingStep::Backward(nb::handle gradient) {
  const InArray array("gradient", gradient);
  const EnginePtr& engine = step_->engine();
  array.CheckOn(*engine);
  if (done_) ThrowValueError("gradient: the backward pass of this step has run already");
  done_ = true;
  TrainingStep& step = ***step_;
  const ConstTensorView dy = array.Matrix(), y = step.passes->output();
  if (dy.rows != y.rows || dy.channels != y.channels) {
    ThrowValueError(absl::StrCat("gradient: shape ", array.ShapeText(), "; [", y.rows, ", ",
                                 y.channels, "] is needed"));
  }
  ParameterStore& parameters = step.of->parameters;
  RunOn(*engine, [&](const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(Tensor own, Tensor::Create(y.rows, y.channels, y.dtype, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().Convert(dy, own.view(), context));
    VOXCONV_RETURN_IF_ERROR(parameters.ClearGradients(context));
    return step.passes->Backward(std::move(own));
  });
  const int64_t size = parameters.trained_size();
  return CopyOut(
      engine, {parameters.all_gradients(), 1, size, DType::kF32, engine->backend().device(), size},
      gradient);
}

nb::list PyTrainedNetwork::Values(nb::handle like) const {
  nb::list values;
  const Device device = engine()->backend().device();
  for (size_t i = 0; i < graph().parameters().size(); ++i) {
    values.append(OutArray(network().parameters.values(static_cast<int>(i)),
                           graph().parameters()[i].shape, DLPackOf(DType::kF32), device,
                           Keep(held_), like));
  }
  return values;
}

nb::list PyTrainedNetwork::Places() const {
  nb::list places;
  ParameterStore& parameters = network().parameters;
  for (size_t i = 0; i < graph().parameters().size(); ++i) {
    const bool trained = graph().parameters()[i].trained();
    places.append(trained ? parameters.gradients(static_cast<int>(i)) - parameters.all_gradients()
                          : int64_t{-1});
  }
  return places;
}

}  // namespace

NetworkGraph GraphOfLayers(const std::string& name, const nb::list& layers) {
  GraphBuilder builder(name);
  std::vector<int> ids;
  for (const nb::handle record : layers) {
    ids.push_back(AddLayer(builder, LayerRecord(record), ids));
  }
  NetworkGraph graph = ValueOf(std::move(builder).Build(ids.empty() ? -1 : ids.back()));
  for (const Parameter& parameter : graph.parameters()) {
    ThrowIfError(graph.SetParameter(parameter.name,
                                    std::vector<float>(static_cast<size_t>(parameter.size()))));
  }
  return graph;
}

void DefineTracedNetwork(nb::module_& module) {
  module.def(
      "_default_plugins",
      [](bool cuda) {
        const LayerChoice choice = DefaultChoice(cuda ? BackendKind::kCuda : BackendKind::kCpu);
        return nb::make_tuple(choice.mapping, choice.dataflow, choice.output_coords);
      },
      nb::arg("cuda"), nb::sig("def _default_plugins(cuda: bool) -> tuple[str, str, str]"),
      "The mapping, dataflow and output_coords of layers for which none are named.");
  nb::class_<PyTrainingStep>(module, "_TrainingStep", "A step between its two passes.")
      .def("output", &PyTrainingStep::Output, nb::sig("def output(self) -> SparseTensor"))
      .def("backward", &PyTrainingStep::Backward, nb::arg("gradient").none(),
           nb::sig("def backward(self, gradient: typing.Any) -> typing.Any"),
           "The gradients of all parameters in one float32 array [1, size].");
  nb::class_<PyTrainedNetwork>(module, "_TrainedNetwork",
                               "A network for training by voxconv.torch.compile.")
      .def(
          "__init__",
          [](PyTrainedNetwork* self, nb::handle network, nb::handle x, nb::handle plan,
             const std::string& precision) {
            const auto& tensor = As<PySparseTensor>("x", x, "SparseTensor");
            new (self) PyTrainedNetwork(GraphOf(network), tensor.engine(),
                                        DefaultChoice(tensor.engine()->backend().kind()),
                                        ToPlan(plan), ToPrecision(precision));
          },
          nb::arg("network").none(), nb::arg("x").none(), nb::arg("plan").none(),
          nb::arg("precision"),
          nb::sig("def __init__(self, network: Network, x: SparseTensor, "
                  "plan: list[dict[str, typing.Any]] | None, precision: str) -> None"))
      .def(
          "forward",
          [](const PyTrainedNetwork& self, nb::handle x, double momentum, uint64_t seed,
             int64_t number) {
            return self.Forward(As<PySparseTensor>("x", x, "SparseTensor"), momentum, seed, number);
          },
          nb::arg("x").none(), nb::arg("momentum"), nb::arg("seed"), nb::arg("number"),
          nb::sig("def forward(self, x: SparseTensor, momentum: float, seed: int, number: int) -> "
                  "_TrainingStep"))
      .def(
          "serves",
          [](const PyTrainedNetwork& self, nb::handle x) {
            return self.engine() == As<PySparseTensor>("x", x, "SparseTensor").engine();
          },
          nb::arg("x").none(), nb::sig("def serves(self, x: SparseTensor) -> bool"),
          "Whether x is on the device and stream that this was made for.")
      .def("values", &PyTrainedNetwork::Values, nb::arg("like").none(),
           nb::sig("def values(self, like: typing.Any) -> list[typing.Any]"),
           "The arrays that the engine reads, by parameter.")
      .def("places", &PyTrainedNetwork::Places, nb::sig("def places(self) -> list[int]"),
           "Where each parameter's gradient begins; -1 for running statistics.");
}

}  // namespace voxconv::python
