// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/reference_network.h"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/reference_cpu/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"

namespace voxconv {
namespace {

reference::Vec3 ToVec3(const Int3& v) { return {v.x, v.y, v.z}; }

reference::Kind ToKind(ConvKind kind) {
  switch (kind) {
    case ConvKind::kSubmanifold:
      return reference::Kind::kSubmanifold;
    case ConvKind::kStrided:
      return reference::Kind::kStrided;
    case ConvKind::kInverse:
      return reference::Kind::kInverse;
    case ConvKind::kTransposed:
      return reference::Kind::kTransposed;
  }
  throw std::invalid_argument("unknown convolution kind");
}

class Interpreter {
 public:
  Interpreter(const NetworkGraph& graph, absl::Span<const Coordinate> coordinates,
              absl::Span<const float> features, const ReferenceHook& hook)
      : graph_(graph),
        hook_(hook),
        coordinates_(graph.coordinates().size()),
        values_(graph.nodes().size()) {
    for (const Coordinate& c : coordinates) coordinates_[0].push_back({c.b, c.x, c.y, c.z});
    values_[0].assign(features.begin(), features.end());
  }

  ReferenceResult Run() && {
    MakeCoordinates();
    const std::vector<int> last = graph_.LastConsumers();
    for (int id = 1; id < static_cast<int>(graph_.nodes().size()); ++id) {
      values_[id] = Evaluate(id);
      if (hook_) Show(id);
      for (int input : graph_.node(id).inputs) {
        if (last[input] == id && input != graph_.output()) values_[input].clear();
      }
    }
    const Node& output = graph_.node(graph_.output());
    ReferenceResult result;
    result.features = std::move(values_[graph_.output()]);
    result.channels = output.channels;
    if (output.coordinates >= 0) {
      for (const reference::Coord& c : coordinates_[output.coordinates]) {
        result.coordinates.push_back({c.b, c.x, c.y, c.z});
      }
    }
    return result;
  }

 private:
  using Values = std::vector<double>;

  void MakeCoordinates() {
    for (size_t id = 1; id < graph_.coordinates().size(); ++id) {
      const CoordinateRecipe& recipe = graph_.coordinates()[id];
      coordinates_[id] = reference::OutputCoordinates(coordinates_[recipe.from],
                                                      ToReferenceGeometry(recipe.geometry));
    }
  }

  const Node& InputNode(const Node& node) const { return graph_.node(node.inputs[0]); }
  const Values& Input(const Node& node, int which = 0) const { return values_[node.inputs[which]]; }
  const std::vector<float>& ParameterOf(const Node& node, int which) const {
    return graph_.parameters()[node.parameters[which]].values;
  }

  // The map of the layer's own geometry, from its input to its output.
  const reference::KernelMap& Map(const Node& node) {
    const int in = InputNode(node).coordinates, out = node.coordinates;
    for (const CachedMap& cached : maps_) {
      if (cached.in == in && cached.out == out && cached.geometry == node.geometry) {
        return *cached.map;
      }
    }
    auto map = std::make_unique<reference::KernelMap>(reference::BuildKernelMap(
        coordinates_[in], coordinates_[out], ToReferenceGeometry(node.geometry)));
    maps_.push_back({in, out, node.geometry, std::move(map)});
    return *maps_.back().map;
  }

  void Show(int id) {
    const Node& node = graph_.node(id);
    ReferenceLayer layer{.node = id};
    for (const int input : node.inputs) layer.inputs.emplace_back(values_[input]);
    if (node.op == Op::kConv) {
      layer.map = &Map(node);
      layer.input_rows = coordinates_[InputNode(node).coordinates];
      layer.output_rows = coordinates_[node.coordinates];
    }
    hook_(layer, values_[id]);
  }

  Values Evaluate(int id) {
    const Node& node = graph_.node(id);
    switch (node.op) {
      case Op::kInput:
        break;
      case Op::kConv:
        return Activate(node, Conv(node));
      case Op::kBatchNorm:
        return Activate(node, reference::BatchNorm(Input(node), {.mean = ParameterOf(node, 2),
                                                                 .variance = ParameterOf(node, 3),
                                                                 .gamma = ParameterOf(node, 0),
                                                                 .beta = ParameterOf(node, 1),
                                                                 .epsilon = kBatchNormEpsilon}));
      case Op::kRelu:
        return reference::Relu(Input(node));
      case Op::kAdd:
        return Activate(node, reference::Add(Input(node, 0), Input(node, 1)));
      case Op::kConcat:
        return reference::Concat(Input(node, 0), Input(node, 1),
                                 Rows(InputNode(node), Input(node)));
      case Op::kLinear:
        return Activate(node, reference::Linear(Input(node), Rows(InputNode(node), Input(node)),
                                                InputNode(node).channels, node.channels,
                                                ParameterOf(node, 0), ParameterOf(node, 1)));
      case Op::kPool:
        return Pool(id);
      case Op::kUnpool:
        return Unpool(node);
      case Op::kGlobalPool:
        return GlobalPool(node);
      case Op::kDropout:  // changes nothing at inference
        return Input(node);
    }
    throw std::invalid_argument("a node that is no layer");
  }

  static int64_t Rows(const Node& node, const Values& values) {
    return static_cast<int64_t>(values.size()) / node.channels;
  }

  static Values Activate(const Node& node, Values values) {
    return node.relu ? reference::Relu(values) : std::move(values);
  }

  Values Conv(const Node& node) {
    const reference::ConvShape shape{
        static_cast<int64_t>(coordinates_[InputNode(node).coordinates].size()),
        static_cast<int64_t>(coordinates_[node.coordinates].size()), InputNode(node).channels,
        node.channels};
    reference::Fp64Array bias;
    if (node.parameters.size() > 1) bias = ParameterOf(node, 1);
    return reference::Convolution(Map(node), shape, Input(node), ParameterOf(node, 0), bias);
  }

  reference::PoolShape ShapeOf(const Node& pool) const {
    return {static_cast<int64_t>(coordinates_[InputNode(pool).coordinates].size()),
            static_cast<int64_t>(coordinates_[pool.coordinates].size()), pool.channels};
  }

  static reference::Divisor DivisorOf(PoolMode mode) {
    return mode == PoolMode::kSum       ? reference::Divisor::kOne
           : mode == PoolMode::kAverage ? reference::Divisor::kKernelVolume
                                        : reference::Divisor::kPresent;
  }

  Values Pool(int id) {
    const Node& node = graph_.node(id);
    if (node.pool_mode != PoolMode::kMax) {
      return reference::SumPool(Map(node), ShapeOf(node), Input(node), DivisorOf(node.pool_mode));
    }
    reference::MaxPooled pooled = reference::MaxPool(Map(node), ShapeOf(node), Input(node));
    switches_[id] = std::move(pooled.switches);
    return std::move(pooled.y);
  }

  Values Unpool(const Node& node) {
    const Node& pool = graph_.node(node.counterpart);
    reference::PoolShape shape = ShapeOf(pool);
    shape.channels = node.channels;
    if (node.pool_mode == PoolMode::kMax) {
      return reference::MaxUnpool(switches_[node.counterpart], shape, Input(node));
    }
    return reference::SumUnpool(Map(pool), shape, Input(node), DivisorOf(node.pool_mode));
  }

  Values GlobalPool(const Node& node) {
    std::vector<int32_t> batch_of_row;
    for (const reference::Coord& c : coordinates_[InputNode(node).coordinates]) {
      batch_of_row.push_back(c.b);
    }
    // Layers before may have dropped samples, so those of the network's input count.
    int64_t num_batches = 0;
    for (const reference::Coord& c : coordinates_[0]) {
      num_batches = std::max<int64_t>(num_batches, c.b + 1);
    }
    const reference::GlobalPooling pooling =
        node.pool_mode == PoolMode::kMax   ? reference::GlobalPooling::kMax
        : node.pool_mode == PoolMode::kSum ? reference::GlobalPooling::kSum
                                           : reference::GlobalPooling::kAverage;
    return reference::GlobalPool(pooling, batch_of_row, num_batches, node.channels, Input(node));
  }

  struct CachedMap {
    int in, out;
    GeometryParams geometry;
    std::unique_ptr<reference::KernelMap> map;
  };

  const NetworkGraph& graph_;
  const ReferenceHook& hook_;
  std::vector<std::vector<reference::Coord>> coordinates_;
  std::vector<Values> values_;
  std::vector<CachedMap> maps_;
  std::map<int, std::vector<int32_t>> switches_;  // by node
};

}  // namespace

reference::Geometry ToReferenceGeometry(const GeometryParams& params) {
  reference::Geometry geometry;
  geometry.kind = ToKind(params.kind);
  geometry.rule =
      params.rule == OutputRule::kQuantize ? reference::Rule::kQuantize : reference::Rule::kDilate;
  geometry.kernel = ToVec3(params.kernel);
  geometry.stride = ToVec3(params.stride);
  geometry.dilation = ToVec3(params.dilation);
  geometry.padding = ToVec3(params.padding);
  geometry.tensor_stride = ToVec3(params.input_tensor_stride);
  if (params.kind == ConvKind::kInverse) {
    // The oracle counts from the fine side.
    for (int axis = 0; axis < 3; ++axis) geometry.tensor_stride[axis] /= params.stride[axis];
  }
  if (params.output_bounds.has_value()) {
    geometry.bounds = {ToVec3(params.output_bounds->lo), ToVec3(params.output_bounds->hi)};
  }
  return geometry;
}

absl::StatusOr<ReferenceResult> RunReferenceNetwork(const NetworkGraph& graph,
                                                    absl::Span<const Coordinate> coordinates,
                                                    absl::Span<const float> features,
                                                    const ReferenceHook& hook) {
  if (features.size() != coordinates.size() * graph.in_channels()) {
    return absl::InvalidArgumentError(absl::StrCat("features: ", features.size(), " values; ",
                                                   coordinates.size(), " rows of ",
                                                   graph.in_channels(), " channels are needed"));
  }
  try {
    return Interpreter(graph, coordinates, features, hook).Run();
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StrCat("reference: ", error.what()));
  }
}

}  // namespace voxconv
