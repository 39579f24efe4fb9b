// SPDX-License-Identifier: Apache-2.0
// Writes a NetworkGraph layer by layer.
#ifndef VOXCONV_NETWORKS_GRAPH_BUILDER_H_
#define VOXCONV_NETWORKS_GRAPH_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

struct ConvOptions {
  ConvKind kind = ConvKind::kSubmanifold;  // not inverse: see InverseConv
  OutputRule rule = OutputRule::kQuantize;
  Int3 kernel{3, 3, 3};
  Int3 stride{1, 1, 1};
  Int3 dilation{1, 1, 1};
  Int3 padding{0, 0, 0};  // in voxconv's convention; CenteredPadding converts from others
  // Rule dilate only: outputs outside are dropped (GeometryParams::output_bounds).
  std::optional<Box> output_bounds = {};
  bool bias = false;
  bool relu = false;
};

// A window's voxels become one as `mode` says. What SpConv's layers do is a choice of the graph:
// its maximum begins at 0, which is kMax with a Relu behind it, and its average is kAveragePresent.
struct PoolOptions {
  PoolMode mode = PoolMode::kMax;
  ConvKind kind = ConvKind::kStrided;  // or submanifold
  OutputRule rule = OutputRule::kQuantize;
  Int3 kernel{2, 2, 2};
  Int3 stride{2, 2, 2};
  Int3 padding{0, 0, 0};
};

// The padding of rule `dilate` for a layer of a project that counts kernel offsets from 0, such as
// SpConv and CenterPoint. `padding`, `kernel` and `dilation` are the values of that project, per
// axis. voxconv's offsets are centred for odd kernels, which moves the window by
// dilation (K - 1) / 2.
Int3 CenteredPadding(const Int3& padding, const Int3& kernel, const Int3& dilation = {1, 1, 1});

// Every method adds nodes and returns the id of the last one. After the first mistake the methods
// return -1 and do nothing, and Build returns the mistake with the layer's name. So callers need no
// check at each layer.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string network) { graph_.name_ = std::move(network); }

  // Exactly one, first.
  int Input(int64_t channels, const Int3& tensor_stride = {1, 1, 1});
  int Conv(const std::string& name, int x, int64_t c_out, const ConvOptions& options);
  // Inverts `strided`, which is a strided convolution or the ConvBlock around one. The outputs are
  // the inputs of that convolution, and the kernel map is its map transposed.
  int InverseConv(const std::string& name, int x, int64_t c_out, int strided, bool bias = false);
  int BatchNorm(const std::string& name, int x, bool relu);
  int Relu(const std::string& name, int x);
  int Add(const std::string& name, int a, int b, bool relu);
  int Concat(const std::string& name, int a, int b);
  int Linear(const std::string& name, int x, int64_t c_out, bool relu = false);
  int Pool(const std::string& name, int x, const PoolOptions& options);
  int Unpool(const std::string& name, int x, int pool);
  // Rows become the batch samples of the network's input. A sample without voxels gives 0. Modes
  // are sum, max and average_present.
  int GlobalPool(const std::string& name, int x, PoolMode mode);
  // In training, `rate` of the values become 0, and the others grow by 1 / (1 - rate). At inference
  // the layer changes nothing. `rate` is in [0, 1). Srivastava et al., 2014.
  int Dropout(const std::string& name, int x, double rate);

  // Convolution without bias (called `name`), batch norm (`name`.bn), ReLU.
  int ConvBlock(const std::string& name, int x, int64_t c_out, const ConvOptions& options);
  // `name`.conv1, bn, ReLU, `name`.conv2, bn. Then the input is added, and a ReLU applied. If the
  // input's channels are not c_out, it goes through `name`.shortcut (1x1x1) and bn first.
  int ResidualBlock(const std::string& name, int x, int64_t c_out, const Int3& kernel = {3, 3, 3});
  // InverseConv, batch norm, ReLU.
  int UpBlock(const std::string& name, int x, int64_t c_out, int strided);

  // The first mistake, or the graph whose result is `output`'s tensor.
  absl::StatusOr<NetworkGraph> Build(int output) &&;

 private:
  // Whether ids are nodes and no mistake was made before.
  bool Ready(const std::string& name, std::initializer_list<int> ids);
  int Fail(const std::string& name, absl::string_view what);
  int Append(Node node);
  int AddParameter(const std::string& name, std::vector<int64_t> shape, Parameter::Role role);
  void AddWeights(Node& node, std::vector<int64_t> shape, bool bias);
  // The id of the set that `geometry` makes of set `from`. Equal sets have one id.
  int OutputCoordinates(int from, const ConvGeometry& geometry);
  // Fills geometry and coordinates of a convolution or pooling.
  bool Place(Node& node, int x, GeometryParams params);
  const Node& node(int id) const { return graph_.nodes_[id]; }

  NetworkGraph graph_;
  absl::Status status_;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_GRAPH_BUILDER_H_
