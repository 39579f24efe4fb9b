// SPDX-License-Identifier: Apache-2.0
// A network as data. It says what the layers are, not how they run.
#ifndef VOXCONV_NETWORKS_GRAPH_H_
#define VOXCONV_NETWORKS_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/types.h"

namespace voxconv {

enum class Op {
  kInput,
  kConv,
  kBatchNorm,
  kRelu,
  kAdd,
  kConcat,
  kLinear,
  kPool,
  kUnpool,
  kGlobalPool,
  kDropout,
};
absl::string_view ToString(Op op);

// Added to the variance of every batch normalisation.
inline constexpr double kBatchNormEpsilon = 1e-5;

// A named array of weights or statistics, row-major f32 on the host. `values` is empty until the
// parameter is initialised or loaded.
struct Parameter {
  enum class Role { kWeight, kBias, kGamma, kBeta, kMean, kVariance };
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::kWeight;
  std::vector<float> values;

  int64_t size() const;
  // Whether training changes the values by their gradient. It does not for running statistics.
  bool trained() const { return role != Role::kMean && role != Role::kVariance; }
};

// One layer. Node ids are positions in NetworkGraph::nodes(), and inputs precede their consumers.
struct Node {
  Op op = Op::kInput;
  std::string name;  // unique
  std::vector<int> inputs;
  int64_t channels = 0;  // of the output
  // The coordinate set that the output lies on (NetworkGraph::coordinates); -1 after global
  // pooling, where rows are batch samples.
  int coordinates = 0;
  // Apply max(y, 0) to the result: convolution, batch norm, add, linear.
  bool relu = false;
  GeometryParams geometry;              // convolution, pooling; unpooling: its pooling's
  PoolMode pool_mode = PoolMode::kMax;  // pooling, unpooling, global pooling
  double dropout_rate = 0;              // dropout: the share of its values that training sets to 0
  // Inverse convolution: the strided one that it inverts. Unpooling: the pooling that it undoes.
  int counterpart = -1;
  // Convolution: weights [K, C_in, C_out], then bias [C_out] if any. Batch norm: gamma, beta, mean,
  // variance, all [C]. Linear: weights [C_in, C_out], bias [C_out].
  std::vector<int> parameters;
};

// How a coordinate set is made. It is the input's, or holds the outputs of a strided or transposed
// geometry on another set. Layers whose outputs are the same voxels share one.
struct CoordinateRecipe {
  int from = -1;  // -1: the network's input
  GeometryParams geometry;
  Int3 tensor_stride{1, 1, 1};  // of the set itself
};

// Valid by construction (networks/graph_builder.h): channels fit, sums and concatenations lie on
// one coordinate set, names are unique.
class NetworkGraph {
 public:
  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(int id) const { return nodes_[id]; }
  // Node 0 is the input. The output's tensor is the network's result.
  int output() const { return output_; }
  const std::vector<CoordinateRecipe>& coordinates() const { return coordinates_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  int64_t in_channels() const { return nodes_[0].channels; }
  // Channels of the node's first input.
  int64_t InputChannels(const Node& node) const { return nodes_[node.inputs[0]].channels; }
  // Ids of all convolutions, in order. The papers leave out shortcut convolutions (1x1x1) when they
  // count layers.
  std::vector<int> Convolutions(bool with_shortcuts = true) const;
  // By node: the last node that reads its tensor, or its own id if none does.
  std::vector<int> LastConsumers() const;
  int64_t num_parameters() const;

  // Copies the values. kNotFound for an unknown name, kInvalidArgument for a wrong number of
  // values.
  absl::Status SetParameter(absl::string_view name, absl::Span<const float> values);
  // Frees the host copies of the values, for instance after they were uploaded.
  void ReleaseParameters();

 private:
  friend class GraphBuilder;
  friend class BatchNormFolder;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<CoordinateRecipe> coordinates_;
  std::vector<Parameter> parameters_;
  int output_ = 0;
};

// A submanifold convolution with kernel 1. It has no neighbours, so it is a matrix product without
// a map.
bool IsPointwise(const Node& node);
// Convolutions with neighbours, pooling and unpooling.
bool UsesKernelMap(const Node& node);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_GRAPH_H_
