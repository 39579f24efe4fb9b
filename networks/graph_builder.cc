// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/graph_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

// Two geometries give the same outputs if they agree in all that the output rule reads. The rule
// `quantize` does not read the kernel.
GeometryParams OutputKey(GeometryParams params) {
  if (params.kind == ConvKind::kStrided && params.rule == OutputRule::kQuantize) {
    params.kernel = {1, 1, 1};
    params.dilation = {1, 1, 1};
  }
  return params;
}

}  // namespace

Int3 CenteredPadding(const Int3& padding, const Int3& kernel, const Int3& dilation) {
  Int3 centered = padding;
  for (int axis = 0; axis < 3; ++axis) {
    if (kernel[axis] % 2 == 1) centered[axis] -= dilation[axis] * (kernel[axis] - 1) / 2;
  }
  return centered;
}

int GraphBuilder::Input(int64_t channels, const Int3& tensor_stride) {
  if (!graph_.nodes_.empty()) return Fail("input", "a network has one input, its first node");
  if (channels < 1) return Fail("input", absl::StrCat("channels ", channels, "; must be positive"));
  graph_.coordinates_.push_back({-1, {}, tensor_stride});
  return Append({.op = Op::kInput, .name = "input", .channels = channels});
}

int GraphBuilder::Conv(const std::string& name, int x, int64_t c_out, const ConvOptions& options) {
  if (!Ready(name, {x})) return -1;
  if (c_out < 1) return Fail(name, absl::StrCat("c_out ", c_out, "; must be positive"));
  if (options.kind == ConvKind::kInverse) {
    return Fail(name, "an inverse convolution names the strided one that it inverts");
  }
  Node conv{.op = Op::kConv, .name = name, .inputs = {x}, .channels = c_out, .relu = options.relu};
  if (!Place(conv, x,
             {.kind = options.kind,
              .rule = options.rule,
              .kernel = options.kernel,
              .stride = options.stride,
              .dilation = options.dilation,
              .padding = options.padding,
              .output_bounds = options.output_bounds})) {
    return -1;
  }
  const Int3& k = options.kernel;
  AddWeights(conv, {int64_t{k.x} * k.y * k.z, node(x).channels, c_out}, options.bias);
  return Append(std::move(conv));
}

int GraphBuilder::InverseConv(const std::string& name, int x, int64_t c_out, int strided,
                              bool bias) {
  if (!Ready(name, {x, strided})) return -1;
  if (c_out < 1) return Fail(name, absl::StrCat("c_out ", c_out, "; must be positive"));
  if (node(strided).op == Op::kBatchNorm) strided = node(strided).inputs[0];
  const Node& counterpart = node(strided);
  if (counterpart.op != Op::kConv || counterpart.geometry.kind != ConvKind::kStrided) {
    return Fail(name,
                absl::StrCat("inverts '", counterpart.name, "', which is no strided convolution"));
  }
  if (node(x).coordinates != counterpart.coordinates) {
    return Fail(name, absl::StrCat("input '", node(x).name,
                                   "' does not lie on the outputs of the strided convolution '",
                                   counterpart.name, "'"));
  }
  Node conv{.op = Op::kConv,
            .name = name,
            .inputs = {x},
            .channels = c_out,
            .coordinates = node(counterpart.inputs[0]).coordinates,
            .counterpart = strided};
  conv.geometry = counterpart.geometry;
  conv.geometry.kind = ConvKind::kInverse;
  conv.geometry.input_tensor_stride = graph_.coordinates_[counterpart.coordinates].tensor_stride;
  const Int3& k = conv.geometry.kernel;
  AddWeights(conv, {int64_t{k.x} * k.y * k.z, node(x).channels, c_out}, bias);
  return Append(std::move(conv));
}

int GraphBuilder::BatchNorm(const std::string& name, int x, bool relu) {
  if (!Ready(name, {x})) return -1;
  Node norm{.op = Op::kBatchNorm,
            .name = name,
            .inputs = {x},
            .channels = node(x).channels,
            .coordinates = node(x).coordinates,
            .relu = relu};
  const std::vector<int64_t> shape{norm.channels};
  norm.parameters = {AddParameter(name + ".gamma", shape, Parameter::Role::kGamma),
                     AddParameter(name + ".beta", shape, Parameter::Role::kBeta),
                     AddParameter(name + ".mean", shape, Parameter::Role::kMean),
                     AddParameter(name + ".variance", shape, Parameter::Role::kVariance)};
  return Append(std::move(norm));
}

int GraphBuilder::Relu(const std::string& name, int x) {
  if (!Ready(name, {x})) return -1;
  return Append({.op = Op::kRelu,
                 .name = name,
                 .inputs = {x},
                 .channels = node(x).channels,
                 .coordinates = node(x).coordinates});
}

int GraphBuilder::Add(const std::string& name, int a, int b, bool relu) {
  if (!Ready(name, {a, b})) return -1;
  if (node(a).channels != node(b).channels) {
    return Fail(name, absl::StrCat("adds '", node(a).name, "' with ", node(a).channels,
                                   " channels and '", node(b).name, "' with ", node(b).channels));
  }
  if (node(a).coordinates != node(b).coordinates) {
    return Fail(name, absl::StrCat("adds '", node(a).name, "' and '", node(b).name,
                                   "', which lie on different coordinates"));
  }
  return Append({.op = Op::kAdd,
                 .name = name,
                 .inputs = {a, b},
                 .channels = node(a).channels,
                 .coordinates = node(a).coordinates,
                 .relu = relu});
}

int GraphBuilder::Concat(const std::string& name, int a, int b) {
  if (!Ready(name, {a, b})) return -1;
  if (node(a).coordinates != node(b).coordinates) {
    return Fail(name, absl::StrCat("concatenates '", node(a).name, "' and '", node(b).name,
                                   "', which lie on different coordinates"));
  }
  return Append({.op = Op::kConcat,
                 .name = name,
                 .inputs = {a, b},
                 .channels = node(a).channels + node(b).channels,
                 .coordinates = node(a).coordinates});
}

int GraphBuilder::Linear(const std::string& name, int x, int64_t c_out, bool relu) {
  if (!Ready(name, {x})) return -1;
  if (c_out < 1) return Fail(name, absl::StrCat("c_out ", c_out, "; must be positive"));
  Node linear{.op = Op::kLinear,
              .name = name,
              .inputs = {x},
              .channels = c_out,
              .coordinates = node(x).coordinates,
              .relu = relu};
  AddWeights(linear, {node(x).channels, c_out}, /*bias=*/true);
  return Append(std::move(linear));
}

int GraphBuilder::Pool(const std::string& name, int x, const PoolOptions& options) {
  if (!Ready(name, {x})) return -1;
  if (options.kind != ConvKind::kStrided && options.kind != ConvKind::kSubmanifold) {
    return Fail(
        name, absl::StrCat("kind ", ToString(options.kind), "; pooling is strided or submanifold"));
  }
  Node pool{.op = Op::kPool,
            .name = name,
            .inputs = {x},
            .channels = node(x).channels,
            .pool_mode = options.mode};
  if (!Place(pool, x,
             {.kind = options.kind,
              .rule = options.rule,
              .kernel = options.kernel,
              .stride = options.stride,
              .padding = options.padding})) {
    return -1;
  }
  return Append(std::move(pool));
}

int GraphBuilder::Unpool(const std::string& name, int x, int pool) {
  if (!Ready(name, {x, pool})) return -1;
  const Node& counterpart = node(pool);
  if (counterpart.op != Op::kPool) {
    return Fail(name, absl::StrCat("undoes '", counterpart.name, "', which is no pooling"));
  }
  if (node(x).coordinates != counterpart.coordinates) {
    return Fail(name, absl::StrCat("input '", node(x).name,
                                   "' does not lie on the outputs of the pooling '",
                                   counterpart.name, "'"));
  }
  // The switches of max pooling are recorded per channel.
  if (counterpart.pool_mode == PoolMode::kMax && node(x).channels != counterpart.channels) {
    return Fail(name, absl::StrCat("input '", node(x).name, "' has ", node(x).channels,
                                   " channels; the max pooling '", counterpart.name, "' has ",
                                   counterpart.channels));
  }
  Node unpool{.op = Op::kUnpool,
              .name = name,
              .inputs = {x},
              .channels = node(x).channels,
              .coordinates = node(counterpart.inputs[0]).coordinates,
              .pool_mode = counterpart.pool_mode,
              .counterpart = pool};
  unpool.geometry = counterpart.geometry;
  return Append(std::move(unpool));
}

int GraphBuilder::GlobalPool(const std::string& name, int x, PoolMode mode) {
  if (!Ready(name, {x})) return -1;
  if (node(x).coordinates < 0) {
    return Fail(name, absl::StrCat("input '", node(x).name, "' is pooled globally already"));
  }
  if (mode == PoolMode::kAverage) {
    return Fail(name, "mode average; allowed are sum, max and average_present");
  }
  return Append({.op = Op::kGlobalPool,
                 .name = name,
                 .inputs = {x},
                 .channels = node(x).channels,
                 .coordinates = -1,
                 .pool_mode = mode});
}

int GraphBuilder::Dropout(const std::string& name, int x, double rate) {
  if (!Ready(name, {x})) return -1;
  if (!(rate >= 0 && rate < 1)) {
    return Fail(name, absl::StrCat("dropout rate ", rate, "; allowed is [0, 1)"));
  }
  return Append({.op = Op::kDropout,
                 .name = name,
                 .inputs = {x},
                 .channels = node(x).channels,
                 .coordinates = node(x).coordinates,
                 .dropout_rate = rate});
}

int GraphBuilder::ConvBlock(const std::string& name, int x, int64_t c_out,
                            const ConvOptions& options) {
  return BatchNorm(name + ".bn", Conv(name, x, c_out, options), /*relu=*/true);
}

int GraphBuilder::ResidualBlock(const std::string& name, int x, int64_t c_out, const Int3& kernel) {
  if (!Ready(name, {x})) return -1;
  const ConvOptions options{.kernel = kernel};
  const int first = ConvBlock(name + ".conv1", x, c_out, options);
  const int second = BatchNorm(name + ".conv2.bn", Conv(name + ".conv2", first, c_out, options),
                               /*relu=*/false);
  int shortcut = x;
  if (node(x).channels != c_out) {
    shortcut =
        BatchNorm(name + ".shortcut.bn", Conv(name + ".shortcut", x, c_out, {.kernel = {1, 1, 1}}),
                  /*relu=*/false);
  }
  return Add(name + ".add", second, shortcut, /*relu=*/true);
}

int GraphBuilder::UpBlock(const std::string& name, int x, int64_t c_out, int strided) {
  return BatchNorm(name + ".bn", InverseConv(name, x, c_out, strided), /*relu=*/true);
}

absl::StatusOr<NetworkGraph> GraphBuilder::Build(int output) && {
  if (status_.ok() && (output < 1 || output >= static_cast<int>(graph_.nodes_.size()))) {
    Fail("output", absl::StrCat("node ", output, "; must be a layer, 1..",
                                static_cast<int>(graph_.nodes_.size()) - 1));
  }
  if (!status_.ok()) return status_;
  graph_.output_ = output;
  return std::move(graph_);
}

bool GraphBuilder::Ready(const std::string& name, std::initializer_list<int> ids) {
  if (!status_.ok()) return false;
  for (int id : ids) {
    if (id < 0 || id >= static_cast<int>(graph_.nodes_.size())) {
      Fail(name, absl::StrCat("node ", id, "; there are ", graph_.nodes_.size(), " nodes"));
      return false;
    }
  }
  return true;
}

int GraphBuilder::Fail(const std::string& name, absl::string_view what) {
  if (status_.ok()) {
    status_ =
        absl::InvalidArgumentError(absl::StrCat(graph_.name_, ": layer '", name, "': ", what));
  }
  return -1;
}

int GraphBuilder::Append(Node node) {
  for (const Node& other : graph_.nodes_) {
    if (other.name == node.name) return Fail(node.name, "the name is taken");
  }
  graph_.nodes_.push_back(std::move(node));
  return static_cast<int>(graph_.nodes_.size()) - 1;
}

int GraphBuilder::AddParameter(const std::string& name, std::vector<int64_t> shape,
                               Parameter::Role role) {
  graph_.parameters_.push_back({name, std::move(shape), role, {}});
  return static_cast<int>(graph_.parameters_.size()) - 1;
}

void GraphBuilder::AddWeights(Node& node, std::vector<int64_t> shape, bool bias) {
  node.parameters.push_back(
      AddParameter(node.name + ".weight", std::move(shape), Parameter::Role::kWeight));
  if (!bias) return;
  node.parameters.push_back(
      AddParameter(node.name + ".bias", {node.channels}, Parameter::Role::kBias));
}

int GraphBuilder::OutputCoordinates(int from, const ConvGeometry& geometry) {
  if (geometry.keeps_coordinates()) return from;
  std::vector<CoordinateRecipe>& recipes = graph_.coordinates_;
  for (int id = 1; id < static_cast<int>(recipes.size()); ++id) {
    if (recipes[id].from == from &&
        OutputKey(recipes[id].geometry) == OutputKey(geometry.params())) {
      return id;
    }
  }
  recipes.push_back({from, geometry.params(), geometry.output_tensor_stride()});
  return static_cast<int>(recipes.size()) - 1;
}

bool GraphBuilder::Place(Node& placed, int x, GeometryParams params) {
  const int from = node(x).coordinates;
  if (from < 0) {
    Fail(placed.name,
         absl::StrCat("input '", node(x).name, "' is pooled globally: it has no coordinates"));
    return false;
  }
  params.input_tensor_stride = graph_.coordinates_[from].tensor_stride;
  const absl::StatusOr<ConvGeometry> geometry = ConvGeometry::Create(params);
  if (!geometry.ok()) {
    Fail(placed.name, geometry.status().message());
    return false;
  }
  placed.geometry = params;
  placed.coordinates = OutputCoordinates(from, *geometry);
  return true;
}

}  // namespace voxconv
