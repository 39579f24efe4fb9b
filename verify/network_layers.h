// SPDX-License-Identifier: Apache-2.0
// Checks each layer of a network, and the network as a whole, against the fp64 reference.
#ifndef VOXCONV_VERIFY_NETWORK_LAYERS_H_
#define VOXCONV_VERIFY_NETWORK_LAYERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/mapping.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/reference_network.h"
#include "voxconv/verify/oracle.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// The graph with folded batch norms, and with weights that are rounded to `precision`. The
// reference and any run in that precision then multiply the same weights. Errors of FoldBatchNorm.
absl::StatusOr<NetworkGraph> FoldedAndRounded(const NetworkGraph& graph, Precision precision);

// Runs each layer on the reference's inputs of that layer, so that the errors of other layers
// cannot hide its own. Lies on the host.
class NetworkLayers {
 public:
  // Runs the reference twice on `features`, which must be representable in `precision`; `graph` is
  // FoldedAndRounded and must outlive the result. Errors of RunReferenceNetwork. Slow: for scenes
  // of some thousand voxels.
  static absl::StatusOr<NetworkLayers> Create(const NetworkGraph& graph, Precision precision,
                                              absl::Span<const Coordinate> rows,
                                              absl::Span<const float> features);

  // The reference's output.
  const ReferenceResult& result() const { return result_; }

  // A bound on the norm-wise error of the whole network. A second run of the reference gives it:
  // there, every layer's output is off by the typical tolerances of its elements (verify/bounds.h),
  // with random signs. To first order this changes the network's output by the sum of J(l) e(l)
  // over the layers l. J(l) is the Jacobian of the layers behind l, so that each error is amplified
  // as the network amplifies it. The tolerances are at least about twice the errors of an honest
  // kernel. In tf32 an output is off by another half unit of 2^-10, because the next product rounds
  // it. In tf32, f16 and bf16 the bound is twice the change, because a dataflow may store a layer
  // up to four times, and because errors of truncation do not cancel.
  double bound() const { return bound_; }

  // Checks every convolution with neighbours: its map by `mapping` and `output_coords`, pair by
  // pair, and its output by `dataflow`, element by element. An error names the layer. Synchronises
  // the stream.
  absl::Status CheckConvolutions(const Mapping& mapping, const OutputCoords& output_coords,
                                 const Dataflow& dataflow, const ExecutionContext& context) const;

  // Checks every layer that the backend computes itself: linear, 1x1x1 convolution, sum and
  // concatenation. An error names the layer. Synchronises the stream.
  absl::Status CheckOperators(const ExecutionContext& context) const;

 private:
  // A convolution or linear layer.
  struct Product {
    int node = 0;
    const Problem* problem = nullptr;                  // of a convolution with neighbours
    std::unique_ptr<const reference::KernelMap> rows;  // the identity, of others
    std::unique_ptr<const ExactConvolution> exact;
    HostEpilogue epilogue;
  };
  // A sum or concatenation, with operands as the dtype holds them.
  struct Pair {
    int node = 0;
    std::vector<float> a, b;
  };

  NetworkLayers(const NetworkGraph& graph, Precision precision)
      : graph_(&graph), precision_(precision) {}

  void Remember(const ReferenceLayer& layer, const std::vector<double>& output);
  void RememberProduct(const ReferenceLayer& layer);
  const Problem* ProblemOf(const ReferenceLayer& layer);
  absl::Status CheckProduct(const Product& product, const ExecutionContext& context) const;
  absl::Status CheckPair(const Pair& pair, const ExecutionContext& context) const;
  std::vector<float> Rounded(absl::Span<const double> values) const;

  const NetworkGraph* graph_;
  Precision precision_;
  ReferenceResult result_;
  double bound_ = 0;
  std::vector<std::unique_ptr<const Problem>> problems_;
  std::vector<Product> products_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<double>> typical_;  // by node: of its output's elements
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_LAYERS_H_
