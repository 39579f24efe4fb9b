// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/feature_store.h"

#include <algorithm>
#include <utility>

#include "voxconv/core/status_macros.h"

namespace voxconv {

void FeatureStore::Grow(int64_t bytes) {
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void FeatureStore::Keep(int node, Tensor tensor) {
  Value& value = values_[node];
  value.owned = std::move(tensor);
  value.view = value.owned->view();
  Grow(value.view.bytes());
}

absl::StatusOr<TensorView> FeatureStore::Allocate(int node, int64_t rows,
                                                  const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Tensor tensor,
                           Tensor::Create(rows, network_.graph.node(node).channels,
                                          StorageOf(network_.config.precision), context));
  Keep(node, std::move(tensor));
  return values_[node].owned->view();
}

absl::StatusOr<TensorView> FeatureStore::AllocateAt(const Place& place, int node, int64_t rows,
                                                    const ExecutionContext& context) {
  if (place.whole < 0) return Allocate(node, rows, context);
  if (!values_[place.whole].owned.has_value()) {
    VOXCONV_RETURN_IF_ERROR(Allocate(place.whole, rows, context).status());
  }
  TensorView part = values_[place.whole].owned->view();
  VOXCONV_CHECK(part.rows == rows);  // concatenated tensors lie on the same voxels
  part.data = static_cast<char*>(part.data) + place.first * SizeOf(part.dtype);
  part.channels = network_.graph.node(node).channels;
  values_[node].view = part;
  return part;
}

absl::StatusOr<TensorView> FeatureStore::TakeOrAllocate(int node, const ExecutionContext& context) {
  const std::vector<int>& dying = network_.schedule.dying_tensors[node];
  const std::vector<int>& inputs = network_.graph.node(node).inputs;
  for (int input : inputs) {
    Value& value = values_[input];
    const bool dies = std::find(dying.begin(), dying.end(), input) != dying.end();
    if (!dies || !value.owned.has_value()) continue;
    live_bytes_ -= value.view.bytes();
    Keep(node, *std::exchange(value.owned, std::nullopt));
    return values_[node].owned->view();
  }
  return Allocate(node, View(inputs[0]).rows, context);
}

absl::Status FeatureStore::AllocateSwitches(int node, const ExecutionContext& context) {
  Value& value = values_[node];
  VOXCONV_ASSIGN_OR_RETURN(value.switches,
                           AllocateArray<int32_t>(value.view.rows * value.view.channels, context));
  Grow(value.switches.bytes());
  return absl::OkStatus();
}

void FeatureStore::FreeAfter(int node) {
  for (int dead : network_.schedule.dying_tensors[node]) {
    Value& value = values_[dead];
    if (value.owned.has_value()) live_bytes_ -= value.view.bytes();
    value.owned.reset();
    value.view = {};
  }
  for (int dead : network_.schedule.dying_switches[node]) {
    live_bytes_ -= values_[dead].switches.bytes();
    values_[dead].switches = Array<int32_t>();
  }
}

}  // namespace voxconv
