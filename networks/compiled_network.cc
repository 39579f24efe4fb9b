// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/compiled_network.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/options.h"
#include "voxconv/networks/batch_norm.h"
#include "voxconv/networks/fold_batch_norm.h"

namespace voxconv {
namespace {

// The instance of `spec`, which is made once. Sets `canonical`.
template <typename Plugin>
absl::StatusOr<const Plugin*> Instance(
    const PluginFamily<Plugin>& family, const std::string& spec, BackendKind backend,
    std::map<std::string, std::unique_ptr<const Plugin>>& instances, std::string& canonical) {
  VOXCONV_ASSIGN_OR_RETURN(canonical, family.Canonical(spec));
  std::unique_ptr<const Plugin>& instance = instances[canonical];
  if (instance == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(instance, family.Create(canonical, backend));
  }
  return instance.get();
}

absl::Status CheckSupport(const char* family, const std::string& spec, const Support& support) {
  return support.ToStatus(absl::StrCat(family, " '", spec, "'"));
}

class Compiler {
 public:
  Compiler(CompiledNetwork& network, const Registry& registry, const ExecutionContext& context)
      : network_(network), graph_(network.graph), registry_(registry), context_(context) {}

  absl::Status Run() {
    VOXCONV_RETURN_IF_ERROR(CheckOrder());
    VOXCONV_RETURN_IF_ERROR(FindKeptLayers());
    VOXCONV_RETURN_IF_ERROR(SetUpLayers());
    VOXCONV_RETURN_IF_ERROR(CheckPrecision());
    FindChains();
    PlanSharing();
    MakeSchedule();
    VOXCONV_RETURN_IF_ERROR(CheckParameters());
    if (network_.config.trains) return absl::OkStatus();
    VOXCONV_RETURN_IF_ERROR(UploadParameters());
    // Copies from the graph's own arrays may still be queued, and the arrays are freed next.
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    graph_.ReleaseParameters();
    return absl::OkStatus();
  }

 private:
  absl::Status CheckOrder() const {
    if (!network_.config.reorder_input) return absl::OkStatus();
    if (network_.config.trains) {
      return absl::InvalidArgumentError("reorder_input: has no meaning for training");
    }
    if (context_.backend->voxel_ops() != nullptr) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(
        "reorder_input: backend ", ToString(context_.backend->kind()), " has no voxel operators"));
  }

  absl::Status FindKeptLayers() {
    for (const std::string& name : network_.config.keep_layers) {
      int id = 1;
      const int size = static_cast<int>(graph_.nodes().size());
      while (id < size && graph_.node(id).name != name) ++id;
      if (id == size) {
        return absl::NotFoundError(absl::StrCat("layer '", name, "': ", graph_.name(),
                                                " has none of this name; its last is '",
                                                graph_.node(graph_.output()).name, "'"));
      }
      network_.kept.push_back(id);
    }
    return absl::OkStatus();
  }

  absl::Status SetUpLayers() {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<LayerChoice> choices,
                             network_.config.planner->Plan(graph_));
    VOXCONV_CHECK(choices.size() == graph_.nodes().size());
    std::vector<std::optional<LayerNeed>> needs(graph_.nodes().size());
    coordinates_made_.assign(graph_.coordinates().size(), false);
    coordinates_made_[0] = true;
    for (int id = 0; id < static_cast<int>(graph_.nodes().size()); ++id) {
      network_.layers.emplace_back();
      if (!UsesKernelMap(graph_.node(id))) continue;
      if (absl::Status status = SetUpLayer(id, choices[id]); !status.ok()) {
        return InLayer(graph_.node(id), status);
      }
      VOXCONV_ASSIGN_OR_RETURN(needs[id], NeedOf(graph_.node(id), network_.layers[id]));
    }
    network_.maps = PlanMaps(graph_, needs, network_.config.reuse_maps);
    return absl::OkStatus();
  }

  absl::Status SetUpLayer(int id, const LayerChoice& choice) {
    const Node& node = graph_.node(id);
    LayerSetup& layer = network_.layers[id];
    VOXCONV_ASSIGN_OR_RETURN(layer.geometry, ConvGeometry::Create(node.geometry));
    const BackendKind backend = context_.backend->kind();
    if (node.counterpart < 0) {
      VOXCONV_ASSIGN_OR_RETURN(
          layer.mapping, Instance(registry_.mappings(), choice.mapping, backend, network_.mappings,
                                  layer.specs.mapping));
      VOXCONV_RETURN_IF_ERROR(
          CheckSupport("mapping", layer.specs.mapping, layer.mapping->Supports(*layer.geometry)));
    } else {
      layer.specs.mapping = network_.layers[node.counterpart].specs.mapping;
    }
    if (node.op == Op::kConv) {
      VOXCONV_RETURN_IF_ERROR(SetUpDataflow(node, choice, layer));
    } else {
      VOXCONV_RETURN_IF_ERROR(SetUpPooling(choice, layer));
    }
    if (!coordinates_made_[node.coordinates]) {
      coordinates_made_[node.coordinates] = true;
      VOXCONV_ASSIGN_OR_RETURN(layer.output_coords,
                               Instance(registry_.output_coords(), choice.output_coords, backend,
                                        network_.output_coords, layer.specs.output_coords));
      VOXCONV_RETURN_IF_ERROR(CheckSupport("output_coords", layer.specs.output_coords,
                                           layer.output_coords->Supports(*layer.geometry)));
    }
    return absl::OkStatus();
  }

  absl::Status SetUpDataflow(const Node& node, const LayerChoice& choice, LayerSetup& layer) {
    VOXCONV_ASSIGN_OR_RETURN(
        layer.dataflow, Instance(registry_.dataflows(), choice.dataflow, context_.backend->kind(),
                                 network_.dataflows, layer.specs.dataflow));
    const ConvShape shape{.c_in = graph_.InputChannels(node),
                          .c_out = node.channels,
                          .num_offsets = layer.geometry->num_offsets(),
                          .symmetric = layer.geometry->symmetric(),
                          .types = ConvTypes::Of(network_.config.precision)};
    layer.shapes.fill(shape);
    // Gradients of parameters are kept in f32, whatever the parameters are stored as.
    layer.shapes[static_cast<int>(Pass::kWeightGrad)].types.weights = DType::kF32;
    const Capability capability = layer.dataflow->CapabilityOf(Pass::kForward, shape);
    layer.fuses_epilogue = capability.fuses_epilogue && !trains();
    layer.strides_rows = capability.strides_rows && layer.fuses_epilogue;
    for (const Pass pass : kAllPasses) {
      if (!Runs(pass)) continue;
      VOXCONV_RETURN_IF_ERROR(
          CheckSupport("dataflow", layer.specs.dataflow,
                       layer.dataflow->Supports(pass, layer.shapes[static_cast<int>(pass)])));
    }
    return absl::OkStatus();
  }

  // A dataflow that leaves pooling to the backend's operators is not reported as what runs it.
  absl::Status SetUpPooling(const LayerChoice& choice, LayerSetup& layer) {
    VOXCONV_ASSIGN_OR_RETURN(
        layer.dataflow, Instance(registry_.dataflows(), choice.dataflow, context_.backend->kind(),
                                 network_.dataflows, layer.specs.dataflow));
    if (!layer.dataflow->pools()) layer.specs.dataflow.clear();
    return absl::OkStatus();
  }

  bool trains() const { return network_.config.trains; }
  bool Runs(Pass pass) const { return pass == Pass::kForward || trains(); }

  absl::StatusOr<LayerNeed> NeedOf(const Node& node, const LayerSetup& layer) const {
    LayerNeed need{.geometry = *layer.geometry, .mapping = layer.specs.mapping, .dataflow = ""};
    if (!layer.specs.dataflow.empty()) {
      VOXCONV_ASSIGN_OR_RETURN(const PluginSpec spec, ParsePluginSpec(layer.specs.dataflow));
      need.dataflow = spec.name;
    }
    for (const Pass pass : kAllPasses) {
      const bool has = node.op == Op::kConv || pass != Pass::kWeightGrad;
      if (!Runs(pass) || !has) continue;
      MapNeed map = NeedOf(node, layer, pass);
      if (!map.error.empty()) return absl::InternalError(map.error);
      need.maps[static_cast<int>(pass)] = std::move(map);
    }
    return need;
  }

  MapNeed NeedOf(const Node& node, const LayerSetup& layer, Pass pass) const {
    if (node.op == Op::kConv) {
      return layer.dataflow->NeededMap(pass, layer.shapes[static_cast<int>(pass)]);
    }
    // An unpooling is a pooling backward, over the same map.
    const bool pools = (node.op == Op::kPool) == (pass == Pass::kForward);
    if (pools && !layer.dataflow->pools()) {
      return {.form = context_.backend->tensor_ops().PoolForm()};
    }
    return layer.dataflow->NeededPoolMap(pools ? Pass::kForward : Pass::kInputGrad,
                                         layer.geometry->symmetric());
  }

  // Plugins have refused what they do not support. Dense operators, which run the other layers,
  // take f32 alone in host memory.
  absl::Status CheckPrecision() const {
    const Precision precision = network_.config.precision;
    const bool host = context_.backend->device().space == MemorySpace::kHost;
    if (!host || precision == Precision::kF32) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat("precision ", ToString(precision),
                                                 ": dense operators in host memory take f32 only"));
  }

  void FindChains() {
    std::vector<int> maker(graph_.coordinates().size(), -1);
    for (int id = 0; id < static_cast<int>(graph_.nodes().size()); ++id) {
      if (network_.layers[id].output_coords != nullptr) maker[graph_.node(id).coordinates] = id;
    }
    std::vector<bool> placed(maker.size(), false);
    for (size_t first = 1; first < maker.size(); ++first) {
      if (placed[first] || maker[first] < 0) continue;
      CoordinateChain chain{.from = graph_.coordinates()[first].from,
                            .output_coords = network_.layers[maker[first]].output_coords,
                            .node = maker[first]};
      for (size_t set = first; set < maker.size(); ++set) {
        const int tip = chain.sets.empty() ? chain.from : chain.sets.back();
        if (placed[set] || maker[set] < 0 || graph_.coordinates()[set].from != tip ||
            network_.layers[maker[set]].output_coords != chain.output_coords) {
          continue;
        }
        placed[set] = true;
        chain.sets.push_back(static_cast<int>(set));
        chain.geometries.push_back(*network_.layers[maker[set]].geometry);
        chain.node = std::min(chain.node, maker[set]);
      }
      network_.chains.push_back(std::move(chain));
    }
  }

  void PlanSharing() {
    constexpr PerPass<int> kNone{-1, -1, -1};
    network_.plans_of_node.assign(graph_.nodes().size(), kNone);
    std::map<std::tuple<const Dataflow*, Pass, int, int64_t, int64_t>, int> slots;
    for (int id = 0; id < static_cast<int>(graph_.nodes().size()); ++id) {
      const Dataflow* dataflow = network_.layers[id].dataflow;
      const Node& node = graph_.node(id);
      if (dataflow == nullptr || node.op != Op::kConv) continue;  // pooling needs no plan
      for (const Pass pass : kAllPasses) {
        if (!Runs(pass)) continue;
        const auto [slot, is_new] =
            slots.try_emplace({dataflow, pass, network_.maps.MapOf(id, pass),
                               graph_.InputChannels(node), node.channels},
                              static_cast<int>(network_.plans.size()));
        if (is_new) network_.plans.push_back({.node = id});
        network_.plans_of_node[id][static_cast<int>(pass)] = slot->second;
        network_.plans[slot->second].last_user = id;
      }
    }
  }

  void MakeSchedule() {
    std::vector<bool> fuses, strides;
    for (const LayerSetup& layer : network_.layers) {
      fuses.push_back(layer.fuses_epilogue);
      strides.push_back(layer.strides_rows);
    }
    std::vector<bool> kept(graph_.nodes().size(), false);
    for (const int id : network_.kept) kept[id] = true;
    network_.schedule = voxconv::MakeSchedule(graph_, fuses, strides, std::move(kept));
    for (int id : network_.schedule.order) {
      const int moved = network_.schedule.tails[id].residual_bias;
      if (moved >= 0) moved_bias_.insert(moved);
    }
  }

  absl::Status CheckParameters() const {
    for (const Node& node : graph_.nodes()) {
      for (int id : node.parameters) {
        if (!graph_.parameters()[id].values.empty()) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("parameter '", graph_.parameters()[id].name, "' has no values"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status UploadParameters() {
    network_.parameters.resize(graph_.nodes().size());
    for (int id : network_.schedule.order) {
      LayerParameters& uploaded = network_.parameters[id];
      if (absl::Status status = Upload(id, uploaded); !status.ok()) {
        return InLayer(graph_.node(id), status);
      }
      network_.parameter_bytes +=
          uploaded.weights.view().bytes() + uploaded.scale.bytes() + uploaded.shift.bytes();
      if (uploaded.prepared_weights != nullptr) {
        network_.parameter_bytes += uploaded.prepared_weights->bytes();
      }
    }
    return absl::OkStatus();
  }

  absl::Status Upload(int id, LayerParameters& uploaded) {
    const Node& node = graph_.node(id);
    if (node.op == Op::kBatchNorm) {
      const ScaleAndShift affine = InferenceBatchNorm(graph_, node);
      VOXCONV_ASSIGN_OR_RETURN(uploaded.scale, UploadFloats(affine.scale));
      VOXCONV_ASSIGN_OR_RETURN(uploaded.shift, UploadFloats(affine.shift));
      return absl::OkStatus();
    }
    if (node.parameters.empty()) return absl::OkStatus();
    const Parameter& weights = graph_.parameters()[node.parameters[0]];
    VOXCONV_ASSIGN_OR_RETURN(
        uploaded.weights,
        Tensor::FromHost(weights.values, weights.size() / node.channels, node.channels, context_,
                         StorageOf(network_.config.precision)));
    if (const LayerSetup& layer = network_.layers[id]; layer.dataflow != nullptr) {
      VOXCONV_ASSIGN_OR_RETURN(
          uploaded.prepared_weights,
          layer.dataflow->PrepareWeights(layer.shapes[static_cast<int>(Pass::kForward)],
                                         uploaded.weights.view(), context_));
    }
    return UploadTail(id, uploaded);
  }

  const std::vector<float>* BiasOf(int id) const {
    const Node& node = graph_.node(id);
    return node.parameters.size() < 2 ? nullptr : &graph_.parameters()[node.parameters[1]].values;
  }

  // The scale and shift of all that the layer does to its sum.
  absl::Status UploadTail(int id, LayerParameters& uploaded) {
    const Tail& tail = network_.schedule.tails[id];
    const std::vector<float>* bias = moved_bias_.contains(id) ? nullptr : BiasOf(id);
    std::vector<double> shift(graph_.node(id).channels, 0.0);
    const auto add = [&shift](const std::vector<float>& values) {
      for (size_t c = 0; c < shift.size(); ++c) shift[c] += values[c];
    };
    if (bias != nullptr) add(*bias);
    if (tail.norm >= 0) {
      const ScaleAndShift affine = InferenceBatchNorm(graph_, graph_.node(tail.norm));
      for (size_t c = 0; c < shift.size(); ++c) {
        shift[c] = shift[c] * affine.scale[c] + affine.shift[c];
      }
      VOXCONV_ASSIGN_OR_RETURN(uploaded.scale, UploadFloats(affine.scale));
    }
    if (tail.residual_bias >= 0) add(*BiasOf(tail.residual_bias));
    if (bias == nullptr && tail.norm < 0 && tail.residual_bias < 0) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(uploaded.shift, UploadFloats(shift));
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<Array<float>> UploadFloats(const std::vector<T>& values) {
    const std::vector<float> floats(values.begin(), values.end());
    VOXCONV_ASSIGN_OR_RETURN(Array<float> array, CopyToBackend<float>(floats, context_));
    // The copy may still be queued, and `floats` ends here.
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    return array;
  }

  CompiledNetwork& network_;
  NetworkGraph& graph_;
  const Registry& registry_;
  const ExecutionContext& context_;
  std::vector<bool> coordinates_made_;
  std::set<int> moved_bias_;  // nodes whose bias another adds
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledNetwork>> CompileNetwork(NetworkGraph graph,
                                                                const RunConfig& config,
                                                                const Registry& registry,
                                                                const ExecutionContext& context) {
  if (config.planner == nullptr) return absl::InvalidArgumentError("planner: none is given");
  if (config.fold_batch_norm) {
    VOXCONV_ASSIGN_OR_RETURN(graph, FoldBatchNorm(std::move(graph)));
  }
  auto network = std::make_unique<CompiledNetwork>();
  network->graph = std::move(graph);
  network->config = config;
  VOXCONV_RETURN_IF_ERROR(Compiler(*network, registry, context).Run());
  return network;
}

absl::Status InLayer(const Node& node, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("layer '", node.name, "': ", status.message()));
}

}  // namespace voxconv
