// SPDX-License-Identifier: Apache-2.0
// The feature tensors of a run.
#ifndef VOXCONV_NETWORKS_FEATURE_STORE_H_
#define VOXCONV_NETWORKS_FEATURE_STORE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/tensor.h"
#include "voxconv/networks/compiled_network.h"

namespace voxconv {

// Keeps the tensor of each node until the last node that reads it has run. Memory is the backend's.
class FeatureStore {
 public:
  explicit FeatureStore(const CompiledNetwork& network)
      : network_(network), values_(network.graph.nodes().size()) {}

  // The node's tensor, which is there.
  const ConstTensorView& View(int node) const { return values_[node].view; }

  // The node's tensor is the caller's, which must live until the run has ended.
  void Borrow(int node, const ConstTensorView& view) { values_[node].view = view; }
  // The node's tensor is `tensor` from now on.
  void Keep(int node, Tensor tensor);
  // As Allocate. But if `place` is a part of another node's tensor, the result is that part, and
  // has gaps between its rows. The other's tensor is made if it is not there.
  absl::StatusOr<TensorView> AllocateAt(const Place& place, int node, int64_t rows,
                                        const ExecutionContext& context);
  // Gives the node an uninitialised tensor, [rows, channels of the node], as the network stores
  // features.
  absl::StatusOr<TensorView> Allocate(int node, int64_t rows, const ExecutionContext& context);
  // For element-wise nodes: takes over the tensor of an input that no later node reads, or
  // allocates one. The input's view can still be read.
  absl::StatusOr<TensorView> TakeOrAllocate(int node, const ExecutionContext& context);
  // Gives up the node's tensor, which the store owns.
  Tensor Release(int node) { return std::move(*values_[node].owned); }

  // The switches of a max pooling (TensorOps::Pool); null where there are none.
  int32_t* Switches(int node) { return values_[node].switches.data(); }
  absl::Status AllocateSwitches(int node, const ExecutionContext& context);

  // Frees what no node reads after `node` has run.
  void FreeAfter(int node);

  // The most bytes of own tensors and switches that were held at once.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Value {
    std::optional<Tensor> owned;  // absent: the tensor is the caller's or another node's by now
    ConstTensorView view;
    Array<int32_t> switches;
  };

  void Grow(int64_t bytes);

  const CompiledNetwork& network_;
  std::vector<Value> values_;  // by node
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_FEATURE_STORE_H_
