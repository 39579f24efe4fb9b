// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "sparse_tensor.h"
#include "traced_network.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/training/weights.h"

namespace voxconv::python {
namespace {

// How a network runs. Equal settings share a runner.
struct RunSettings {
  LayerChoice choice;
  std::vector<PlannedLayer> plan;  // of convolutions; empty: `choice` is that of all layers
  Precision precision = Precision::kF32;
  bool fold_batch_norm = false;
  bool profile = false;
};

RunConfig ConfigOf(const RunSettings& settings) {
  std::shared_ptr<const Planner> planner = std::make_shared<FixedPlanner>(settings.choice);
  if (!settings.plan.empty()) {
    planner = std::make_shared<ListedPlanner>(settings.plan, settings.choice);
  }
  return {.planner = std::move(planner),
          .precision = settings.precision,
          .fold_batch_norm = settings.fold_batch_norm,
          .profile_stages = settings.profile};
}

// A graph with its parameters on the host, and the runner of the last settings.
class Network {
 public:
  explicit Network(NetworkGraph graph) : graph_(std::move(graph)) {}

  const NetworkGraph& graph() const { return graph_; }
  void Initialize(uint64_t seed) {
    InitializeParameters(graph_, seed);
    runner_ = nullptr;
  }
  void Load(nb::handle weights);
  PySparseTensor Run(const PySparseTensor& x, const RunSettings& settings);
  RunReport Profile(const PySparseTensor& x, const RunSettings& settings);

 private:
  using Runner = std::shared_ptr<NetworkRunner>;

  void SetAll(const NpzArrays& arrays);
  RunResult RunOnce(const PySparseTensor& x, const RunSettings& settings);
  // The runner for these settings; its parameters are uploaded once.
  HeldPtr<Runner> RunnerFor(const EnginePtr& engine, const RunSettings& settings);

  NetworkGraph graph_;
  HeldPtr<Runner> runner_;
  RunSettings settings_;  // of the runner
  std::shared_ptr<const Registry> plugins_;
};

// Arrays on the CPU, as a file would have them.
NpzArrays ArraysOf(const nb::dict& weights) {
  NpzArrays arrays;
  for (const auto [key, value] : weights) {
    std::string name;
    if (!nb::try_cast(key, name)) ThrowTypeError("weights: the keys must be strings");
    const std::string label = absl::StrCat("weights '", name, "'");
    arrays.emplace_back(name, HostFloats(label.c_str(), value));
  }
  return arrays;
}

void Network::SetAll(const NpzArrays& arrays) {
  NetworkGraph graph = graph_;  // all or nothing
  for (const Parameter& parameter : graph.parameters()) {
    const NpyArray* array = FindArray(arrays, parameter.name);
    if (array == nullptr) {
      ThrowValueError(absl::StrCat("weights: '", parameter.name, "' is missing"));
    }
    if (array->shape != parameter.shape) {
      ThrowValueError(absl::StrCat("weights '", parameter.name, "': shape ",
                                   NpyShapeString(array->shape), "; ",
                                   NpyShapeString(parameter.shape), " is needed"));
    }
    ThrowIfError(graph.SetParameter(parameter.name, ValueOf(ToFloat32(*array, parameter.name))));
  }
  if (arrays.size() != graph.parameters().size()) {
    for (const auto& [name, array] : arrays) {
      const std::vector<float> values(static_cast<size_t>(array.size()));
      if (absl::IsNotFound(graph.SetParameter(name, values))) {
        ThrowValueError(
            absl::StrCat("weights '", name, "': ", graph.name(), " has no parameter of this name"));
      }
    }
  }
  graph_ = std::move(graph);
  runner_ = nullptr;
}

void Network::Load(nb::handle weights) {
  if (nb::isinstance<nb::dict>(weights)) return SetAll(ArraysOf(nb::borrow<nb::dict>(weights)));
  SetAll(ValueOf(ReadNpz(ToPath("weights", weights))));
}

HeldPtr<Network::Runner> Network::RunnerFor(const EnginePtr& engine, const RunSettings& settings) {
  const auto key = [](const RunSettings& s) {
    return std::tie(s.choice.mapping, s.choice.dataflow, s.choice.output_coords, s.plan,
                    s.precision, s.fold_batch_norm, s.profile);
  };
  const std::shared_ptr<const Registry> plugins = Plugins();
  if (runner_ != nullptr && runner_->engine() == engine && plugins == plugins_ &&
      key(settings) == key(settings_)) {
    return runner_;
  }
  NetworkGraph graph = graph_;
  Runner runner = RunOn(*engine, [&](const ExecutionContext& context) -> absl::StatusOr<Runner> {
    VOXCONV_ASSIGN_OR_RETURN(auto made, NetworkRunner::Create(std::move(graph), ConfigOf(settings),
                                                              *plugins, *context.backend));
    return Runner(std::move(made));
  });
  runner_ = Hold(engine, std::move(runner));
  settings_ = settings;
  plugins_ = plugins;
  return runner_;
}

RunResult Network::RunOnce(const PySparseTensor& x, const RunSettings& settings) {
  const HeldPtr<Runner> runner = RunnerFor(x.engine(), settings);
  return RunOn(*x.engine(), [&](const ExecutionContext&) { return (**runner)->Run(x.view()); });
}

PySparseTensor Network::Run(const PySparseTensor& x, const RunSettings& settings) {
  return {x.engine(), RunOnce(x, settings).output, x.features()};
}

RunReport Network::Profile(const PySparseTensor& x, const RunSettings& settings) {
  return RunOnce(x, settings).report;
}

nb::dict RecordOf(const LayerReport& layer) {
  nb::dict record;
  record["layer"] = layer.name;
  record["op"] = layer.op;
  record["fused_into"] = layer.fused_into;
  record["geometry"] = layer.geometry;
  record["c_in"] = layer.c_in;
  record["c_out"] = layer.c_out;
  record["n_in"] = layer.n_in;
  record["n_out"] = layer.n_out;
  record["pairs"] = layer.pairs;
  record["mapping"] = layer.mapping;
  record["dataflow"] = layer.dataflow;
  record["output_coords"] = layer.output_coords;
  record["map_origin"] = ToString(layer.map_origin);
  for (int i = 0; i < kNumStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    record[absl::StrCat(ToString(stage), "_ms").c_str()] = layer.profile.Time(stage);
  }
  record["total_ms"] = layer.profile.Total();
  return record;
}

// The file is read once.
const measure::Defaults& DefaultPlugins() {
  static std::optional<measure::Defaults> defaults;
  if (!defaults.has_value()) defaults = ValueOf(measure::LoadDefaults());
  return *defaults;
}

// Plugins that are not named are those of defaults.json for the input's device.
RunSettings ToSettings(const PySparseTensor& x, const std::optional<std::string>& mapping,
                       const std::optional<std::string>& dataflow,
                       const std::optional<std::string>& output_coords, nb::handle plan,
                       const std::optional<std::string>& precision, bool fold_batch_norm,
                       bool profile) {
  RunSettings settings;
  settings.plan = ToPlan(plan);
  if (!settings.plan.empty() && (mapping || dataflow || output_coords)) {
    ThrowValueError(
        "plan: has the plugins of all layers; mapping, dataflow and output_coords have "
        "no meaning with it");
  }
  settings.choice = DefaultChoice(x.engine()->backend().kind());
  settings.choice.mapping = mapping.value_or(settings.choice.mapping);
  settings.choice.dataflow = dataflow.value_or(settings.choice.dataflow);
  settings.choice.output_coords = output_coords.value_or(settings.choice.output_coords);
  settings.precision =
      precision.has_value() ? ToPrecision(*precision) : PrecisionOf(x.matrix().dtype);
  settings.fold_batch_norm = fold_batch_norm;
  settings.profile = profile;
  return settings;
}

Network MakeNetwork(const std::string& name, nb::handle in_channels, nb::handle classes,
                    double width, nb::handle grid) {
  constexpr int64_t kMaxChannels = 65536;
  return Network(ValueOf(
      MakeModel(name, {.width = width,
                       .in_channels = ToInteger("in_channels", in_channels, 0, kMaxChannels),
                       .classes = ToInteger("classes", classes, 0, kMaxChannels),
                       .grid = ToBox("grid", grid)})));
}

nb::dict StateDict(const Network& network) {
  nb::dict state;
  for (const Parameter& parameter : network.graph().parameters()) {
    if (parameter.values.empty()) {
      ThrowValueError(absl::StrCat("parameter '", parameter.name,
                                   "' has no values; call load or initialize first"));
    }
    auto values = std::make_shared<std::vector<float>>(parameter.values);
    float* data = values->data();
    state[parameter.name.c_str()] = OutArray(data, parameter.shape, DLPackOf(DType::kF32), Device{},
                                             Keep(std::move(values)), {});
  }
  return state;
}

// Parameters of another engine's convention, as load takes them.
nb::dict ParametersFrom(const Network& network, const std::string& convention,
                        const nb::dict& weights, const nb::dict& names) {
  Safetensors content;
  for (const auto& [name, array] : ArraysOf(weights)) {
    content.tensors.push_back(MakeSafeTensor(name, array.shape, ValueOf(ToFloat32(array, name))));
  }
  WeightNames array_names;
  for (const auto [parameter, array] : names) {
    array_names.emplace_back(nb::cast<std::string>(parameter), nb::cast<std::string>(array));
  }
  WeightsFit fit;
  const Safetensors converted =
      ConvertWeights(network.graph(), content, ValueOf(ParseConvention(convention)),
                     Convention::kVoxconv, array_names, fit);
  nb::dict result;
  const auto lines = [&](const char* key, const std::vector<std::string>& texts) {
    nb::list list;
    for (const std::string& text : texts) list.append(text);
    result[key] = list;
  };
  lines("missing", fit.missing);
  lines("wrong", fit.wrong);
  lines("surplus", fit.surplus);
  nb::dict arrays;
  for (const SafeTensor& tensor : converted.tensors) {
    auto values = std::make_shared<std::vector<float>>(ValueOf(ToFloat32(tensor)));
    float* data = values->data();
    arrays[tensor.name.c_str()] =
        OutArray(data, tensor.shape, DLPackOf(DType::kF32), Device{}, Keep(std::move(values)), {});
  }
  result["arrays"] = arrays;
  return result;
}

nb::dict ParameterShapes(const Network& network) {
  nb::dict shapes;
  for (const Parameter& parameter : network.graph().parameters()) {
    nb::list shape;
    for (const int64_t size : parameter.shape) shape.append(size);
    shapes[parameter.name.c_str()] = nb::tuple(shape);
  }
  return shapes;
}

constexpr char kRunArguments[] =
    "mapping: str | None = None, dataflow: str | None = None, output_coords: str | None = None, "
    "plan: list[dict[str, typing.Any]] | None = None, precision: str | None = None, "
    "fold_batch_norm: bool = False)";

}  // namespace

LayerChoice DefaultChoice(BackendKind kind) { return ValueOf(DefaultPlugins().LayersOn(kind)); }

std::vector<PlannedLayer> ToPlan(nb::handle plan) {
  std::vector<PlannedLayer> layers;
  if (plan.is_none()) return layers;
  if (!nb::isinstance<nb::list>(plan) || nb::len(plan) == 0) {
    ThrowTypeError("plan: a list of dicts is needed, as voxconv.tune returns it");
  }
  const auto text = [](nb::handle record, const char* key) {
    const nb::object value = nb::borrow<nb::dict>(record).attr("get")(key);
    if (!nb::isinstance<nb::str>(value)) {
      ThrowTypeError(absl::StrCat("plan: '", key, "' is missing in a layer, or is no string"));
    }
    return nb::cast<std::string>(value);
  };
  constexpr int64_t kMostChannels = 65536;
  for (const nb::handle record : plan) {
    if (!nb::isinstance<nb::dict>(record)) {
      ThrowTypeError(absl::StrCat("plan: a dict is needed for each layer, not ", TypeText(record)));
    }
    const auto number = [&](const char* key) {
      const nb::object value = nb::borrow<nb::dict>(record).attr("get")(key);
      if (value.is_none()) {
        ThrowValueError(
            absl::StrCat("plan: '", key, "' is missing in layer '", text(record, "layer"), "'"));
      }
      return ToInteger(absl::StrCat("plan: '", key, "'").c_str(), value, 1, kMostChannels);
    };
    layers.push_back(
        {text(record, "layer"),
         number("c_in"),
         number("c_out"),
         {text(record, "mapping"), text(record, "dataflow"), text(record, "output_coords")}});
  }
  return layers;
}

const NetworkGraph& GraphOf(nb::handle network) {
  return As<Network>("network", network, "Network").graph();
}

void DefineNetwork(nb::module_& module) {
  static const std::string kCallSignature =
      absl::StrCat("def __call__(self, x: SparseTensor, *, ", kRunArguments, " -> SparseTensor");
  static const std::string kProfileSignature = absl::StrCat(
      "def profile(self, x: SparseTensor, *, ", kRunArguments, " -> list[dict[str, typing.Any]]");
  nb::class_<Network>(module, "Network", "A network of the papers, made by voxconv.networks.")
      .def(
          "__init__",
          [](Network* self, const std::string& name, nb::handle in_channels, nb::handle classes,
             double width, nb::handle grid) {
            new (self) Network(MakeNetwork(name, in_channels, classes, width, grid));
          },
          nb::arg("name"), nb::arg("in_channels") = 0, nb::arg("classes") = 19,
          nb::arg("width") = 1.0, nb::arg("grid") = nb::none(),
          nb::sig("def __init__(self, name: str, in_channels: int = 0, classes: int = 19, "
                  "width: float = 1.0, "
                  "grid: collections.abc.Sequence[int] | None = None) -> None"),
          "The network of this name; use the functions of voxconv.networks.")
      .def_static(
          "_of_layers",
          [](const std::string& name, const nb::list& layers) {
            return Network(GraphOfLayers(name, layers));
          },
          nb::arg("name"), nb::arg("layers"),
          nb::sig("def _of_layers(name: str, layers: list[dict[str, typing.Any]]) -> Network"),
          "The network of layers that voxconv.torch.compile has found.")
      .def_prop_ro(
          "name", [](const Network& n) { return n.graph().name(); },
          "The name of its function in voxconv.networks.")
      .def_prop_ro(
          "in_channels", [](const Network& n) { return n.graph().in_channels(); },
          "Features of an input voxel.")
      .def_prop_ro(
          "num_parameters", [](const Network& n) { return n.graph().num_parameters(); },
          "The number of all values of its parameters.")
      .def_prop_ro("parameter_shapes", &ParameterShapes,
                   nb::sig("def parameter_shapes(self) -> dict[str, tuple[int, ...]]"),
                   "Shapes by name. Weights of convolutions are [K, C_in, C_out].")
      .def(
          "load",
          [](nb::object self, nb::handle weights) {
            nb::cast<Network&>(self).Load(weights);
            return self;
          },
          nb::arg("weights").none(),
          nb::sig("def load(self, weights: str | os.PathLike[str] | collections.abc.Mapping[str, "
                  "typing.Any]) -> Network"),
          R"(Sets all parameters, which are copied, and returns the network.

Args:
    weights: float32 arrays by name, or the path of an .npz file with them.

Raises:
    ValueError: a parameter is missing, unknown, or of another shape or dtype. Nothing is set
        then.)")
      .def(
          "initialize",
          [](nb::object self, nb::handle seed) {
            nb::cast<Network&>(self).Initialize(
                static_cast<uint64_t>(ToInteger("seed", seed, 0, INT64_MAX)));
            return self;
          },
          nb::arg("seed") = 1, nb::sig("def initialize(self, seed: int = 1) -> Network"),
          "Gives all parameters values that depend on the seed and their names, and returns the "
          "network.")
      .def("state_dict", &StateDict, nb::sig("def state_dict(self) -> dict[str, typing.Any]"),
           "Copies of all parameters: NumPy float32 arrays by name, as load takes them.")
      .def("_convert", &ParametersFrom, nb::arg("convention"), nb::arg("weights"), nb::arg("names"),
           "What voxconv.interop makes of another engine's weights: the arrays that fit, and lines "
           "on those that are missing, wrong and surplus.")
      .def(
          "__call__",
          [](Network& self, nb::handle x_object, const std::optional<std::string>& mapping,
             const std::optional<std::string>& dataflow,
             const std::optional<std::string>& output_coords, nb::handle plan,
             const std::optional<std::string>& precision, bool fold_batch_norm) {
            const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
            return self.Run(x, ToSettings(x, mapping, dataflow, output_coords, plan, precision,
                                          fold_batch_norm, /*profile=*/false));
          },
          nb::arg("x").none(), nb::kw_only(), nb::arg("mapping") = nb::none(),
          nb::arg("dataflow") = nb::none(), nb::arg("output_coords") = nb::none(),
          nb::arg("plan") = nb::none(), nb::arg("precision") = nb::none(),
          nb::arg("fold_batch_norm") = false, nb::sig(kCallSignature.c_str()),
          R"(Runs the network.

Args:
    x: the input, [N, in_channels], of stride 1.
    mapping, dataflow, output_coords: specs of plugins for all layers. Those that are not given are
        the device's defaults (experiments/presets/defaults.json).
    plan: the plugins of each convolution, as voxconv.tune returns them.
    precision: "f32"; on CUDA also "tf32", "f16" and "bf16". Without it, that of x's dtype.
    fold_batch_norm: fold batch norm into the convolutions.

Returns:
    The output, on x's device and in an array of its framework.

Raises:
    ValueError: x does not fit, or parameters have no values.
    NotImplementedError: a plugin gives its reason, with the layer's name.
    MemoryError: the memory does not suffice.

On CUDA the host waits for the device where it must learn a size. One thread at a time runs a
network.

>>> import voxconv
>>> x = voxconv.load("scene:sphere?n=1000", channels=4)
>>> network = voxconv.networks.minkunet42(width=0.25).initialize(seed=1)
>>> network(x).channels
19
)")
      .def(
          "profile",
          [](Network& self, nb::handle x_object, const std::optional<std::string>& mapping,
             const std::optional<std::string>& dataflow,
             const std::optional<std::string>& output_coords, nb::handle plan,
             const std::optional<std::string>& precision, bool fold_batch_norm) {
            const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
            nb::list records;
            const RunReport report =
                self.Profile(x, ToSettings(x, mapping, dataflow, output_coords, plan, precision,
                                           fold_batch_norm, /*profile=*/true));
            for (const LayerReport& layer : report.layers) records.append(RecordOf(layer));
            return records;
          },
          nb::arg("x").none(), nb::kw_only(), nb::arg("mapping") = nb::none(),
          nb::arg("dataflow") = nb::none(), nb::arg("output_coords") = nb::none(),
          nb::arg("plan") = nb::none(), nb::arg("precision") = nb::none(),
          nb::arg("fold_batch_norm") = false, nb::sig(kProfileSignature.c_str()),
          R"(Runs the network once and says what each layer did.

Returns one dict a layer, for pandas.DataFrame.

The arguments and errors are those of a call. Times are in milliseconds. Waits for the device.)")
      .def("__reduce_ex__",
           [](nb::handle, nb::handle) -> nb::object {
             ThrowTypeError(
                 "Network: has no copies and no pickles; copy its state_dict, and load it into "
                 "another");
           })
      .def("__repr__", [](const Network& n) {
        return absl::StrCat("Network(", n.graph().name(), ", ", n.graph().in_channels(),
                            " channels in, ", n.graph().num_parameters(), " parameters)");
      });
}

}  // namespace voxconv::python
