// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/network_layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/fold_batch_norm.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// What a layer's error grows by at most where its output is stored four times, or where its output
// in f32 is rounded to tf32 by truncation, whose errors do not cancel.
double StoresFactor(Precision precision) {
  return StorageUnit(precision) > 0 || precision == Precision::kTf32 ? 2 : 1;
}

// In tf32 the outputs of layers are f32. The next product rounds them: to nearest or by truncation,
// by half a unit of 2^-10 in the mean.
double OperandRounding(Precision precision, double value) {
  return precision == Precision::kTf32 ? 0x1p-11 * std::abs(value) : 0;
}

// Of an element-wise layer in f32.
Tolerance RoundingOf(double value) {
  return {0x1p-24 * std::abs(value), 0x1p-24 * std::abs(value)};
}

std::vector<double> TypicalOf(const Expected& expected) {
  std::vector<double> typical(expected.tolerances.size());
  std::transform(expected.tolerances.begin(), expected.tolerances.end(), typical.begin(),
                 [](const Tolerance& tolerance) { return tolerance.typical; });
  return typical;
}

// Row i of the output from row i of the input.
reference::KernelMap Identity(int64_t rows) {
  reference::KernelMap map{1, {0, rows}, std::vector<int32_t>(rows), {}};
  std::iota(map.in.begin(), map.in.end(), 0);
  map.out = map.in;
  return map;
}

}  // namespace

absl::StatusOr<NetworkGraph> FoldedAndRounded(const NetworkGraph& graph, Precision precision) {
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph folded, FoldBatchNorm(graph));
  for (const Node& node : folded.nodes()) {
    if (node.op != Op::kConv && node.op != Op::kLinear) continue;
    const Parameter& weights = folded.parameters()[node.parameters[0]];
    const std::string name = weights.name;
    VOXCONV_RETURN_IF_ERROR(folded.SetParameter(name, RoundedTo(precision, weights.values)));
  }
  return folded;
}

absl::StatusOr<NetworkLayers> NetworkLayers::Create(const NetworkGraph& graph, Precision precision,
                                                    absl::Span<const Coordinate> rows,
                                                    absl::Span<const float> features) {
  NetworkLayers layers(graph, precision);
  layers.typical_.resize(graph.nodes().size());
  VOXCONV_ASSIGN_OR_RETURN(layers.result_, RunReferenceNetwork(graph, rows, features,
                                                               [&](const ReferenceLayer& layer,
                                                                   std::vector<double>& output) {
                                                                 layers.Remember(layer, output);
                                                               }));
  const auto disturb = [&](const ReferenceLayer& layer, std::vector<double>& output) {
    const std::vector<double>& typical = layers.typical_[layer.node];
    const std::vector<float> signs = Values(static_cast<int64_t>(output.size()), layer.node);
    for (size_t i = 0; i < output.size(); ++i) {
      output[i] += signs[i] < 0 ? -typical[i] : typical[i];
    }
  };
  VOXCONV_ASSIGN_OR_RETURN(const ReferenceResult disturbed,
                           RunReferenceNetwork(graph, rows, features, disturb));
  layers.bound_ = StoresFactor(precision) *
                  reference::RelativeError(disturbed.features, layers.result_.features);
  return layers;
}

std::vector<float> NetworkLayers::Rounded(absl::Span<const double> values) const {
  return RoundedTo(precision_, {values.begin(), values.end()});
}

void NetworkLayers::Remember(const ReferenceLayer& layer, const std::vector<double>& output) {
  const Node& node = graph_->node(layer.node);
  std::vector<double>& typical = typical_[layer.node];
  if (node.op == Op::kConv || node.op == Op::kLinear) {
    RememberProduct(layer);
    typical = TypicalOf(products_.back().exact->Expect({}, products_.back().epilogue));
    for (size_t i = 0; i < typical.size(); ++i)
      typical[i] += OperandRounding(precision_, output[i]);
    return;
  }
  if (node.op == Op::kAdd || node.op == Op::kConcat) {
    pairs_.push_back({layer.node, Rounded(layer.inputs[0]), Rounded(layer.inputs[1])});
  }
  for (const double value : output) {
    const double stored = StoredTolerance(precision_, value, RoundingOf(value)).typical;
    typical.push_back(node.op == Op::kConcat ? 0 : stored + OperandRounding(precision_, value));
  }
}

void NetworkLayers::RememberProduct(const ReferenceLayer& layer) {
  const Node& node = graph_->node(layer.node);
  const int64_t c_in = graph_->InputChannels(node);
  const auto num_inputs = static_cast<int64_t>(layer.inputs[0].size()) / c_in;
  reference::ConvShape shape{num_inputs, num_inputs, c_in, node.channels};
  Product product{.node = layer.node};
  const auto parameter = [&](size_t i) { return graph_->parameters()[node.parameters[i]].values; };
  if (node.op == Op::kConv && !IsPointwise(node)) {
    product.problem = ProblemOf(layer);
    shape.num_outputs = static_cast<int64_t>(layer.output_rows.size());
  } else {
    product.rows = std::make_unique<const reference::KernelMap>(Identity(num_inputs));
  }
  product.exact = std::make_unique<const ExactConvolution>(
      product.problem != nullptr ? product.problem->map : *product.rows,
      RoundedOperands(shape, precision_, Rounded(layer.inputs[0]), parameter(0)));
  if (node.parameters.size() > 1) product.epilogue.shift = parameter(1);
  product.epilogue.relu = node.relu;
  products_.push_back(std::move(product));
}

const Problem* NetworkLayers::ProblemOf(const ReferenceLayer& layer) {
  const Node& node = graph_->node(layer.node);
  auto problem = std::make_unique<Problem>(Problem{node.name, *ConvGeometry::Create(node.geometry),
                                                   FromReference(layer.input_rows),
                                                   FromReference(layer.output_rows), *layer.map});
  const auto known = std::find_if(problems_.begin(), problems_.end(), [&](const auto& other) {
    return other->geometry.params() == node.geometry && other->inputs == problem->inputs &&
           other->outputs == problem->outputs;
  });
  if (known != problems_.end()) return known->get();
  problems_.push_back(std::move(problem));
  return problems_.back().get();
}

absl::Status NetworkLayers::CheckConvolutions(const Mapping& mapping,
                                              const OutputCoords& output_coords,
                                              const Dataflow& dataflow,
                                              const ExecutionContext& context) const {
  // Layers with one problem follow each other but for the decoder's.
  std::vector<std::optional<KernelMap>> maps(problems_.size());
  for (const Product& product : products_) {
    if (product.problem == nullptr) continue;
    const auto check = [&]() -> absl::Status {
      const auto at = std::find_if(problems_.begin(), problems_.end(), [&](const auto& problem) {
        return problem.get() == product.problem;
      });
      std::optional<KernelMap>& map = maps[at - problems_.begin()];
      if (!map.has_value()) {
        VOXCONV_ASSIGN_OR_RETURN(map,
                                 CheckedMap(*product.problem, mapping, &output_coords, context));
      }
      return CheckConvolution(dataflow, *map, *product.exact, context, product.epilogue);
    };
    if (const absl::Status status = check(); !status.ok()) {
      return InLayer(graph_->node(product.node), status);
    }
  }
  return absl::OkStatus();
}

absl::Status NetworkLayers::CheckOperators(const ExecutionContext& context) const {
  for (const Product& product : products_) {
    if (product.problem != nullptr) continue;
    const absl::Status status = CheckProduct(product, context);
    if (!status.ok()) return InLayer(graph_->node(product.node), status);
  }
  for (const Pair& pair : pairs_) {
    const absl::Status status = CheckPair(pair, context);
    if (!status.ok()) return InLayer(graph_->node(pair.node), status);
  }
  return absl::OkStatus();
}

absl::Status NetworkLayers::CheckProduct(const Product& product,
                                         const ExecutionContext& context) const {
  const Operands& operands = product.exact->operands();
  const reference::ConvShape& shape = operands.shape;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor x, Tensor::FromHost(operands.features, shape.num_inputs, shape.c_in, context,
                                       StorageOf(precision_)));
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor w,
      Tensor::FromHost(operands.weights, shape.c_in, shape.c_out, context, StorageOf(precision_)));
  VOXCONV_ASSIGN_OR_RETURN(const Array<float> bias,
                           CopyToBackend<float>(product.epilogue.shift, context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, Tensor::Create(shape.num_outputs, shape.c_out,
                                                          StorageOf(precision_), context));
  TensorOps& ops = context.backend->tensor_ops();
  const float* shift = product.epilogue.shift.empty() ? nullptr : bias.data();
  VOXCONV_RETURN_IF_ERROR(ops.Linear(x.view(), w.view(), shift, precision_, y.view(), context));
  if (product.epilogue.relu) {
    VOXCONV_RETURN_IF_ERROR(ops.ScaleShift(y.view(), nullptr, nullptr, true, y.view(), context));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, y.ToHost(context));
  return CheckOutput(output, product.exact->Expect({}, product.epilogue));
}

absl::Status NetworkLayers::CheckPair(const Pair& pair, const ExecutionContext& context) const {
  const Node& node = graph_->node(pair.node);
  const int64_t channels_a = graph_->InputChannels(node);
  const int64_t channels_b = graph_->node(node.inputs[1]).channels;
  const auto rows = static_cast<int64_t>(pair.a.size()) / channels_a;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor a, Tensor::FromHost(pair.a, rows, channels_a, context, StorageOf(precision_)));
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor b, Tensor::FromHost(pair.b, rows, channels_b, context, StorageOf(precision_)));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y,
                           Tensor::Create(rows, node.channels, StorageOf(precision_), context));
  TensorOps& ops = context.backend->tensor_ops();
  Expected expected{.channels = node.channels};
  if (node.op == Op::kConcat) {
    VOXCONV_RETURN_IF_ERROR(ops.Concat(a.view(), b.view(), y.view(), context));
    expected.values = reference::Concat(pair.a, pair.b, rows);
    expected.tolerances.resize(expected.values.size());  // copies are exact
  } else {
    VOXCONV_RETURN_IF_ERROR(ops.Add(a.view(), b.view(), node.relu, y.view(), context));
    expected.values = reference::Add(pair.a, pair.b);
    if (node.relu) expected.values = reference::Relu(expected.values);
    for (const double value : expected.values) {
      expected.tolerances.push_back(StoredTolerance(precision_, value, RoundingOf(value)));
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, y.ToHost(context));
  return CheckOutput(output, expected);
}

}  // namespace voxconv::verify
