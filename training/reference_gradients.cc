// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/reference_gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/training_step.h"
#include "voxconv/networks/reference_network.h"
#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/reference_cpu/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"

namespace voxconv {
namespace {

using Values = std::vector<double>;

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

reference::Divisor DivisorOf(PoolMode mode) {
  return mode == PoolMode::kSum       ? reference::Divisor::kOne
         : mode == PoolMode::kAverage ? reference::Divisor::kKernelVolume
                                      : reference::Divisor::kPresent;
}

// The coordinates and maps of a graph on one input.
class Scene {
 public:
  Scene(const NetworkGraph& graph, absl::Span<const Coordinate> rows)
      : graph_(graph), coordinates_(graph.coordinates().size()) {
    for (const Coordinate& c : rows) coordinates_[0].push_back({c.b, c.x, c.y, c.z});
    for (size_t id = 1; id < coordinates_.size(); ++id) {
      const CoordinateRecipe& recipe = graph.coordinates()[id];
      coordinates_[id] = reference::OutputCoordinates(coordinates_[recipe.from],
                                                      ToReferenceGeometry(recipe.geometry));
    }
    map_of_node_.assign(graph.nodes().size(), -1);
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
      const Node& node = graph.nodes()[id];
      if (node.op == Op::kConv || node.op == Op::kPool) map_of_node_[id] = MakeMap(node);
    }
  }

  const NetworkGraph& graph() const { return graph_; }
  const Node& node(int id) const { return graph_.node(id); }
  const Node& input_node(int id) const { return node(node(id).inputs[0]); }
  const reference::KernelMap& Map(int id) const { return maps_[map_of_node_[id]].second; }
  int64_t Rows(int coordinates) const {
    return static_cast<int64_t>(coordinates_[coordinates].size());
  }
  const std::vector<reference::Coord>& Coordinates(int id) const { return coordinates_[id]; }

  reference::ConvShape ConvShapeOf(int id) const {
    return {Rows(input_node(id).coordinates), Rows(node(id).coordinates), input_node(id).channels,
            node(id).channels};
  }
  reference::PoolShape PoolShapeOf(int pool, int64_t channels) const {
    return {Rows(input_node(pool).coordinates), Rows(node(pool).coordinates), channels};
  }

 private:
  int MakeMap(const Node& node) {
    const int in = graph_.node(node.inputs[0]).coordinates;
    for (size_t i = 0; i < maps_.size(); ++i) {
      const MapKey& key = maps_[i].first;
      if (key.in == in && key.out == node.coordinates && key.geometry == node.geometry) {
        return static_cast<int>(i);
      }
    }
    maps_.emplace_back(MapKey{in, node.coordinates, node.geometry},
                       reference::BuildKernelMap(coordinates_[in], coordinates_[node.coordinates],
                                                 ToReferenceGeometry(node.geometry)));
    return static_cast<int>(maps_.size()) - 1;
  }

  struct MapKey {
    int in, out;
    GeometryParams geometry;
  };
  const NetworkGraph& graph_;
  std::vector<std::vector<reference::Coord>> coordinates_;
  std::vector<std::pair<MapKey, reference::KernelMap>> maps_;
  std::vector<int> map_of_node_;
};

// One forward and backward pass.
class Pass64 {
 public:
  Pass64(const Scene& scene, const std::vector<Values>& parameters,
         const ReferenceTraining::Dropout& dropout, const ReferenceTraining::ReluSides& sides)
      : scene_(scene),
        parameters_(parameters),
        dropout_(dropout),
        sides_(sides),
        values_(scene.graph().nodes().size()),
        gradients_(values_.size()),
        switches_(values_.size()) {
    result_.parameters.resize(parameters.size());
    result_.means.resize(values_.size());
    result_.variances.resize(values_.size());
    sides_.resize(values_.size());
  }

  ReferenceGradients Run(absl::Span<const double> features, absl::Span<const int32_t> labels,
                         const ReferenceLoss& loss) && {
    values_[0].assign(features.begin(), features.end());
    const auto nodes = static_cast<int>(values_.size());
    for (int id = 1; id < nodes; ++id) {
      values_[id] = Evaluate(id);
      if (EndsWithRelu(id)) Rectify(id);
    }
    const int output = scene_.graph().output();
    result_.logits = values_[output];
    ReferenceLossResult of_logits =
        ComputeReferenceLoss(values_[output], node(output).channels, labels, loss);
    result_.loss = of_logits.loss;
    gradients_[output] = std::move(of_logits.gradient);
    for (int id = nodes - 1; id > 0; --id) {
      if (!gradients_[id].empty()) Differentiate(id);
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Values& gradient = result_.parameters[i];
      const bool trained = scene_.graph().parameters()[i].trained();
      if (gradient.empty() && trained) gradient.assign(parameters_[i].size(), 0.0);
    }
    return std::move(result_);
  }

 private:
  const Node& node(int id) const { return scene_.node(id); }
  const Values& Input(int id, int which = 0) const { return values_[node(id).inputs[which]]; }
  int64_t InputRows(int id) const {
    return static_cast<int64_t>(Input(id).size()) / scene_.input_node(id).channels;
  }
  const Values& ParameterOf(int id, int which) const {
    return parameters_[node(id).parameters[which]];
  }
  Values BiasOf(int id) const {
    return node(id).parameters.size() > 1 ? ParameterOf(id, 1) : Values();
  }

  bool EndsWithRelu(int id) const { return node(id).relu || node(id).op == Op::kRelu; }

  // By the given sides, or by its own, which it keeps for the gradient.
  void Rectify(int id) {
    Values& x = values_[id];
    std::vector<uint8_t>& sides = sides_[id];
    std::vector<uint8_t> own(x.size());
    double squares = 0, furthest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      own[i] = x[i] > 0 ? 1 : 0;
      squares += x[i] * x[i];
    }
    if (sides.empty()) sides = own;
    Require(sides.size() == x.size(), "sides: not one for each element of " + node(id).name);
    for (size_t i = 0; i < x.size(); ++i) {
      if (sides[i] != own[i]) {
        ++result_.forced;
        furthest = std::max(furthest, std::abs(x[i]));
      }
      if (sides[i] == 0) x[i] = 0;
    }
    if (furthest == 0) return;
    const double mean_square = squares / static_cast<double>(x.size());
    result_.furthest_forced = std::max(result_.furthest_forced, furthest / std::sqrt(mean_square));
  }

  Values Evaluate(int id) {
    switch (node(id).op) {
      case Op::kInput:
        break;
      case Op::kConv:
        return reference::Convolution(scene_.Map(id), scene_.ConvShapeOf(id), Input(id),
                                      ParameterOf(id, 0), BiasOf(id));
      case Op::kBatchNorm:
        return BatchNorm(id);
      case Op::kRelu:
        return Input(id);  // Rectify follows
      case Op::kAdd:
        return reference::Add(Input(id, 0), Input(id, 1));
      case Op::kConcat:
        return reference::Concat(Input(id, 0), Input(id, 1), InputRows(id));
      case Op::kLinear:
        return reference::Linear(Input(id), InputRows(id), scene_.input_node(id).channels,
                                 node(id).channels, ParameterOf(id, 0), BiasOf(id));
      case Op::kPool:
        return Pool(id);
      case Op::kUnpool:
        return Unpool(id);
      case Op::kGlobalPool:
        return GlobalPool(id);
      case Op::kDropout:
        return Dropout(id, Input(id));
    }
    throw std::invalid_argument("a node that is no layer");
  }

  Values BatchNorm(int id) {
    const Values& x = Input(id);
    const int64_t channels = node(id).channels, rows = InputRows(id);
    Values &mean = result_.means[id], &variance = result_.variances[id];
    mean.assign(channels, 0.0);
    variance.assign(channels, 0.0);
    for (size_t i = 0; i < x.size(); ++i) mean[i % channels] += x[i] / rows;
    for (size_t i = 0; i < x.size(); ++i) {
      variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / rows;
    }
    return reference::BatchNorm(x, {.mean = mean,
                                    .variance = variance,
                                    .gamma = ParameterOf(id, 0),
                                    .beta = ParameterOf(id, 1),
                                    .epsilon = kBatchNormEpsilon});
  }

  Values Pool(int id) {
    const reference::PoolShape shape = scene_.PoolShapeOf(id, node(id).channels);
    const PoolMode mode = node(id).pool_mode;
    if (mode != PoolMode::kMax) {
      return reference::SumPool(scene_.Map(id), shape, Input(id), DivisorOf(mode));
    }
    reference::MaxPooled pooled = reference::MaxPool(scene_.Map(id), shape, Input(id));
    switches_[id] = std::move(pooled.switches);
    return std::move(pooled.y);
  }

  Values Unpool(int id) const {
    const int pool = node(id).counterpart;
    const reference::PoolShape shape = scene_.PoolShapeOf(pool, node(id).channels);
    const PoolMode mode = node(id).pool_mode;
    return mode == PoolMode::kMax
               ? reference::MaxUnpool(switches_[pool], shape, Input(id))
               : reference::SumUnpool(scene_.Map(pool), shape, Input(id), DivisorOf(mode));
  }

  // The batch sample of each row of the node's input. `samples`: those of the network's input,
  // since layers before the node may have dropped some.
  std::vector<int32_t> Samples(int id, int64_t& samples) const {
    std::vector<int32_t> batch;
    samples = 0;
    for (const reference::Coord& c : scene_.Coordinates(scene_.input_node(id).coordinates)) {
      batch.push_back(c.b);
    }
    for (const reference::Coord& c : scene_.Coordinates(0)) {
      samples = std::max<int64_t>(samples, c.b + 1);
    }
    return batch;
  }

  Values GlobalPool(int id) const {
    int64_t samples = 0;
    const std::vector<int32_t> batch = Samples(id, samples);
    const reference::GlobalPooling pooling =
        node(id).pool_mode == PoolMode::kMax   ? reference::GlobalPooling::kMax
        : node(id).pool_mode == PoolMode::kSum ? reference::GlobalPooling::kSum
                                               : reference::GlobalPooling::kAverage;
    return reference::GlobalPool(pooling, batch, samples, node(id).channels, Input(id));
  }

  // Also of a gradient. Which elements stay is part of the definition (core/training_ops.h).
  Values Dropout(int id, const Values& x) const {
    const double rate = node(id).dropout_rate;
    const uint64_t seed = DropoutSeed(dropout_.seed, dropout_.step, id);
    Values y(x.size(), 0.0);
    for (size_t i = 0; i < x.size(); ++i) {
      if (DropoutKeeps(seed, i, DropoutKeptBelow(rate))) y[i] = x[i] / (1 - rate);
    }
    return y;
  }

  void Contribute(int id, int which, const Values& gradient) {
    Values& sum = gradients_[node(id).inputs[which]];
    sum = sum.empty() ? gradient : reference::Add(sum, gradient);
  }

  void Differentiate(int id) {
    Values dy = std::move(gradients_[id]);
    if (EndsWithRelu(id)) {
      for (size_t i = 0; i < dy.size(); ++i) {
        if (sides_[id][i] == 0) dy[i] = 0;
      }
    }
    switch (node(id).op) {
      case Op::kInput:
        return;
      case Op::kConv:
        return DifferentiateConv(id, dy);
      case Op::kBatchNorm:
        return DifferentiateBatchNorm(id, dy);
      case Op::kRelu:
        return Contribute(id, 0, dy);
      case Op::kAdd:
        Contribute(id, 0, dy);
        return Contribute(id, 1, dy);
      case Op::kConcat:
        return DifferentiateConcat(id, dy);
      case Op::kLinear:
        return DifferentiateLinear(id, dy);
      case Op::kPool:
        return DifferentiatePool(id, dy);
      case Op::kUnpool:
        return DifferentiateUnpool(id, dy);
      case Op::kGlobalPool:
        return DifferentiateGlobalPool(id, dy);
      case Op::kDropout:
        return Contribute(id, 0, Dropout(id, dy));
    }
  }

  void SetGradient(int id, int which, Values gradient) {
    result_.parameters[node(id).parameters[which]] = std::move(gradient);
  }

  static Values ColumnSums(const Values& x, int64_t channels) {
    Values sums(channels, 0.0);
    for (size_t i = 0; i < x.size(); ++i) sums[i % channels] += x[i];
    return sums;
  }

  void DifferentiateConv(int id, const Values& dy) {
    const reference::ConvShape shape = scene_.ConvShapeOf(id);
    if (node(id).parameters.size() > 1) SetGradient(id, 1, ColumnSums(dy, shape.c_out));
    SetGradient(id, 0, reference::BackwardWeight(scene_.Map(id), shape, Input(id), dy));
    Contribute(id, 0, reference::BackwardInput(scene_.Map(id), shape, dy, ParameterOf(id, 0)));
  }

  void DifferentiateLinear(int id, const Values& dy) {
    const int64_t c_in = scene_.input_node(id).channels, c_out = node(id).channels;
    const Values &x = Input(id), &w = ParameterOf(id, 0);
    Values dw(w.size(), 0.0), dx(x.size(), 0.0);
    for (int64_t row = 0; row < InputRows(id); ++row) {
      for (int64_t i = 0; i < c_in; ++i) {
        for (int64_t o = 0; o < c_out; ++o) {
          dw[i * c_out + o] += x[row * c_in + i] * dy[row * c_out + o];
          dx[row * c_in + i] += w[i * c_out + o] * dy[row * c_out + o];
        }
      }
    }
    if (node(id).parameters.size() > 1) SetGradient(id, 1, ColumnSums(dy, c_out));
    SetGradient(id, 0, std::move(dw));
    Contribute(id, 0, dx);
  }

  // By the chain rule through mean and variance (Ioffe and Szegedy, 2015).
  void DifferentiateBatchNorm(int id, const Values& dy) {
    const int64_t channels = node(id).channels;
    const auto rows = static_cast<double>(InputRows(id));
    const Values &x = Input(id), &mean = result_.means[id], &variance = result_.variances[id];
    const Values& gamma = ParameterOf(id, 0);
    Values d_variance(channels, 0.0), d_mean(channels, 0.0), d_gamma(channels, 0.0), dx(x.size());
    const auto std_of = [&](int64_t c) { return std::sqrt(variance[c] + kBatchNormEpsilon); };
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t c = i % channels;
      const double centred = x[i] - mean[c], d_normal = dy[i] * gamma[c];
      d_gamma[c] += dy[i] * centred / std_of(c);
      d_variance[c] -= d_normal * centred / 2 / std::pow(std_of(c), 3);
      d_mean[c] -= d_normal / std_of(c);
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t c = i % channels;
      dx[i] = dy[i] * gamma[c] / std_of(c) + d_variance[c] * 2 * (x[i] - mean[c]) / rows +
              d_mean[c] / rows;
    }
    SetGradient(id, 0, std::move(d_gamma));
    SetGradient(id, 1, ColumnSums(dy, channels));
    Contribute(id, 0, dx);
  }

  void DifferentiateConcat(int id, const Values& dy) {
    const int64_t channels = node(id).channels, first = scene_.input_node(id).channels;
    Values a, b;
    for (size_t i = 0; i < dy.size(); ++i) {
      (static_cast<int64_t>(i) % channels < first ? a : b).push_back(dy[i]);
    }
    Contribute(id, 0, a);
    Contribute(id, 1, b);
  }

  void DifferentiatePool(int id, const Values& dy) {
    const reference::PoolShape shape = scene_.PoolShapeOf(id, node(id).channels);
    const PoolMode mode = node(id).pool_mode;
    Contribute(id, 0,
               mode == PoolMode::kMax
                   ? reference::MaxUnpool(switches_[id], shape, dy)
                   : reference::SumUnpool(scene_.Map(id), shape, dy, DivisorOf(mode)));
  }

  void DifferentiateUnpool(int id, const Values& dy) {
    const int pool = node(id).counterpart;
    const int64_t channels = node(id).channels;
    const reference::PoolShape shape = scene_.PoolShapeOf(pool, channels);
    if (node(id).pool_mode != PoolMode::kMax) {
      Contribute(id, 0,
                 reference::SumPool(scene_.Map(pool), shape, dy, DivisorOf(node(id).pool_mode)));
      return;
    }
    const std::vector<int32_t>& switches = switches_[pool];
    Values dx(switches.size(), 0.0);
    for (size_t i = 0; i < switches.size(); ++i) {
      if (switches[i] >= 0) dx[i] = dy[switches[i] * channels + i % channels];
    }
    Contribute(id, 0, dx);
  }

  void DifferentiateGlobalPool(int id, const Values& dy) {
    int64_t samples = 0;
    const std::vector<int32_t> batch = Samples(id, samples);
    const int64_t channels = node(id).channels;
    const Values& x = Input(id);
    Values count(samples, 0.0), dx(x.size(), 0.0);
    for (const int32_t b : batch) count[b] += 1;
    std::vector<bool> taken(dy.size(), false);
    for (size_t i = 0; i < x.size(); ++i) {
      const int32_t b = batch[i / channels];
      const int64_t at = b * channels + i % channels;
      if (node(id).pool_mode == PoolMode::kMax) {
        if (taken[at] || x[i] != values_[id][at]) continue;
        taken[at] = true;
        dx[i] = dy[at];
      } else {
        dx[i] = node(id).pool_mode == PoolMode::kSum ? dy[at] : dy[at] / count[b];
      }
    }
    Contribute(id, 0, dx);
  }

  const Scene& scene_;
  const std::vector<Values>& parameters_;
  const ReferenceTraining::Dropout dropout_;
  ReferenceTraining::ReluSides sides_;          // by node
  std::vector<Values> values_, gradients_;      // by node
  std::vector<std::vector<int32_t>> switches_;  // by node: of max pooling
  ReferenceGradients result_;
};

class ReferenceTraining64 final : public ReferenceTraining {
 public:
  ReferenceTraining64(const NetworkGraph& graph, absl::Span<const Coordinate> coordinates)
      : graph_(graph), scene_(graph_, coordinates) {}

  absl::StatusOr<ReferenceGradients> Compute(const std::vector<Values>& parameters,
                                             absl::Span<const double> features,
                                             absl::Span<const int32_t> labels,
                                             const ReferenceLoss& loss, const Dropout& dropout,
                                             const ReluSides& sides) const override {
    try {
      Require(static_cast<int64_t>(features.size()) == scene_.Rows(0) * graph_.in_channels(),
              "features: not a row for each voxel");
      Require(parameters.size() == graph_.parameters().size(), "parameters: not all are given");
      Require(sides.empty() || sides.size() == graph_.nodes().size(), "sides: not all are given");
      return Pass64(scene_, parameters, dropout, sides).Run(features, labels, loss);
    } catch (const std::invalid_argument& error) {
      return absl::InvalidArgumentError(absl::StrCat("reference: ", error.what()));
    }
  }

 private:
  NetworkGraph graph_;
  Scene scene_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReferenceTraining>> ReferenceTraining::Create(
    const NetworkGraph& graph, absl::Span<const Coordinate> coordinates) {
  try {
    return std::make_unique<ReferenceTraining64>(graph, coordinates);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StrCat("reference: ", error.what()));
  }
}

}  // namespace voxconv
