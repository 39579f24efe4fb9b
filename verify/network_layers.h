// A network on the fp64 reference, as a test of each of its layers and of their chain.
#ifndef VOXCONV_VERIFY_NETWORK_LAYERS_H_
#define VOXCONV_VERIFY_NETWORK_LAYERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/convolution.h"
#include "core/mapping.h"
#include "networks/graph.h"
#include "networks/reference_network.h"
#include "verify/oracle.h"
#include "verify/problem.h"

namespace voxconv::verify {

// The graph with folded batch norms and weights that `dtype` holds exactly: the same weights are
// then multiplied by the reference and by any run in that dtype. Refuses what FoldBatchNorm does.
absl::StatusOr<NetworkGraph> FoldedAndRounded(const NetworkGraph& graph, DType dtype);

// Does each layer on the reference's inputs, so that no error hides behind those of other layers.
class NetworkLayers {
 public:
  // Runs the reference twice on `features`, which must be representable in `dtype`; `graph` is
  // FoldedAndRounded and must outlive the result. Errors of RunReferenceNetwork. Slow: for scenes
  // of some thousand voxels.
  static absl::StatusOr<NetworkLayers> Create(const NetworkGraph& graph, DType dtype,
                                              absl::Span<const Coordinate> rows,
                                              absl::Span<const float> features);

  // The reference's output.
  const ReferenceResult& result() const { return result_; }

  // On the norm-wise error of the whole network. Second run of the reference: every layer's output
  // is off by the typical tolerances of its elements (verify/bounds.h), with random signs. What
  // this does to the network's output is, to first order, sum J(l) e(l) over the layers l, with the
  // Jacobian J(l) from there on: each error is amplified as the network amplifies it. Tolerances
  // are twice the errors of an honest kernel or more. In tf32 an output is off by half a unit of
  // 2^-10 besides, since the next product rounds it. In 16 bits and tf32 the bound is twice the
  // outcome: a dataflow may store up to four times a layer, and errors of truncation do not cancel.
  double bound() const { return bound_; }

  // Every convolution with neighbours: its map by `mapping` and `output_coords`, pair by pair, and
  // its output by `dataflow`, element by element. An error names the layer.
  absl::Status CheckConvolutions(const Mapping& mapping, const OutputCoords& output_coords,
                                 const Dataflow& dataflow, const ExecutionContext& context) const;

  // Every layer that the backend computes itself: linear, 1x1x1 convolution, sum, concatenation.
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

  NetworkLayers(const NetworkGraph& graph, DType dtype) : graph_(&graph), dtype_(dtype) {}

  void Remember(const ReferenceLayer& layer, const std::vector<double>& output);
  void RememberProduct(const ReferenceLayer& layer);
  const Problem* ProblemOf(const ReferenceLayer& layer);
  absl::Status CheckProduct(const Product& product, const ExecutionContext& context) const;
  absl::Status CheckPair(const Pair& pair, const ExecutionContext& context) const;
  std::vector<float> Rounded(absl::Span<const double> values) const;

  const NetworkGraph* graph_;
  DType dtype_;
  ReferenceResult result_;
  double bound_ = 0;
  std::vector<std::unique_ptr<const Problem>> problems_;
  std::vector<Product> products_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<double>> typical_;  // by node: of its output's elements
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_LAYERS_H_
