#include "networks/compiled_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "networks/batch_norm.h"
#include "networks/fold_batch_norm.h"

namespace voxconv {
namespace {

// The instance of `spec`, made once. Sets `canonical`.
template <typename Plugin>
absl::StatusOr<const Plugin*> Instance(
    const PluginFamily<Plugin>& family, const std::string& spec,
    std::map<std::string, std::unique_ptr<const Plugin>>& instances, std::string& canonical) {
  VOXCONV_ASSIGN_OR_RETURN(canonical, family.Canonical(spec));
  std::unique_ptr<const Plugin>& instance = instances[canonical];
  if (instance == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(instance, family.Create(canonical));
  }
  return instance.get();
}

absl::Status CheckSupport(const char* family, const std::string& spec, const Support& support) {
  if (support.ok) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(family, " '", spec, "': ", support.reason));
}

class Compiler {
 public:
  Compiler(CompiledNetwork& network, const Registry& registry, const ExecutionContext& context)
      : network_(network), graph_(network.graph), registry_(registry), context_(context) {}

  absl::Status Run() {
    VOXCONV_RETURN_IF_ERROR(SetUpLayers());
    VOXCONV_RETURN_IF_ERROR(UploadParameters());
    FindLifetimes();
    // Copies from the graph's own arrays may still be queued.
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    graph_.ReleaseParameters();
    return absl::OkStatus();
  }

 private:
  absl::Status SetUpLayers() {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<LayerChoice> choices,
                             network_.config.planner->Plan(graph_));
    VOXCONV_CHECK(choices.size() == graph_.nodes().size());
    std::vector<std::optional<MapNeed>> needs(graph_.nodes().size());
    coordinates_made_.assign(graph_.coordinates().size(), false);
    coordinates_made_[0] = true;
    for (int id = 0; id < static_cast<int>(graph_.nodes().size()); ++id) {
      network_.layers.emplace_back();
      if (!UsesKernelMap(graph_.node(id))) continue;
      if (absl::Status status = SetUpLayer(id, choices[id]); !status.ok()) {
        return InLayer(graph_.node(id), status);
      }
      const LayerSetup& layer = network_.layers[id];
      LayoutRequest layout;
      if (layer.dataflow != nullptr) {
        layout = layer.dataflow->RequiredLayout(layer.geometry->num_offsets());
      }
      needs[id] = {*layer.geometry, layer.specs.mapping, layout};
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
      VOXCONV_ASSIGN_OR_RETURN(layer.mapping, Instance(registry_.mappings(), choice.mapping,
                                                       network_.mappings, layer.specs.mapping));
      VOXCONV_RETURN_IF_ERROR(CheckSupport("mapping", layer.specs.mapping,
                                           layer.mapping->Supports(*layer.geometry, backend)));
    } else {
      layer.specs.mapping = network_.layers[node.counterpart].specs.mapping;
    }
    if (node.op == Op::kConv) {
      VOXCONV_ASSIGN_OR_RETURN(layer.dataflow, Instance(registry_.dataflows(), choice.dataflow,
                                                        network_.dataflows, layer.specs.dataflow));
      const ConvShape shape{graph_.InputChannels(node), node.channels, network_.config.dtype};
      VOXCONV_RETURN_IF_ERROR(
          CheckSupport("dataflow", layer.specs.dataflow, layer.dataflow->Supports(shape, backend)));
    }
    if (!coordinates_made_[node.coordinates]) {
      coordinates_made_[node.coordinates] = true;
      VOXCONV_ASSIGN_OR_RETURN(layer.output_coords,
                               Instance(registry_.output_coords(), choice.output_coords,
                                        network_.output_coords, layer.specs.output_coords));
      VOXCONV_RETURN_IF_ERROR(
          CheckSupport("output_coords", layer.specs.output_coords,
                       layer.output_coords->Supports(*layer.geometry, backend)));
    }
    return absl::OkStatus();
  }

  absl::Status UploadParameters() {
    for (const Node& node : graph_.nodes()) {
      LayerParameters& uploaded = network_.parameters.emplace_back();
      for (int id : node.parameters) {
        if (!graph_.parameters()[id].values.empty()) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("parameter '", graph_.parameters()[id].name, "' has no values"));
      }
      if (absl::Status status = Upload(node, uploaded); !status.ok()) return InLayer(node, status);
      network_.parameter_bytes +=
          uploaded.weights.view().bytes() + uploaded.scale.bytes() + uploaded.shift.bytes();
    }
    return absl::OkStatus();
  }

  absl::Status Upload(const Node& node, LayerParameters& uploaded) {
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
        Tensor::FromHost(weights.values, weights.size() / node.channels, node.channels, context_));
    if (node.parameters.size() < 2) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(uploaded.shift,
                             UploadFloats(graph_.parameters()[node.parameters[1]].values));
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<Array<float>> UploadFloats(const std::vector<T>& values) {
    const std::vector<float> floats(values.begin(), values.end());
    VOXCONV_ASSIGN_OR_RETURN(Array<float> array, CopyToBackend<float>(floats, context_));
    // `floats` ends here: the copy may still be queued.
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    return array;
  }

  void FindLifetimes() {
    const int size = static_cast<int>(graph_.nodes().size());
    network_.dying_tensors.resize(size);
    network_.dying_switches.resize(size);
    const std::vector<int> last = graph_.LastConsumers();
    std::vector<int> last_unpool(size, -1);
    for (int id = 0; id < size; ++id) {
      if (id != graph_.output()) network_.dying_tensors[last[id]].push_back(id);
      if (graph_.node(id).op == Op::kUnpool) last_unpool[graph_.node(id).counterpart] = id;
    }
    for (int id = 0; id < size; ++id) {
      if (last_unpool[id] >= 0) network_.dying_switches[last_unpool[id]].push_back(id);
    }
  }

  CompiledNetwork& network_;
  NetworkGraph& graph_;
  const Registry& registry_;
  const ExecutionContext& context_;
  std::vector<bool> coordinates_made_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledNetwork>> CompileNetwork(NetworkGraph graph,
                                                                const RunConfig& config,
                                                                const Registry& registry,
                                                                const ExecutionContext& context) {
  if (config.planner == nullptr) return absl::InvalidArgumentError("planner: none is given");
  if (config.dtype != DType::kF32 && config.dtype != DType::kTf32) {
    return absl::UnimplementedError(
        absl::StrCat("dtype ", ToString(config.dtype), ": networks run in f32 and tf32"));
  }
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
