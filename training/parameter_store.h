// SPDX-License-Identifier: Apache-2.0
// The parameters of a network that is trained, and their gradients.
#ifndef VOXCONV_TRAINING_PARAMETER_STORE_H_
#define VOXCONV_TRAINING_PARAMETER_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// Keeps all parameters in one flat f32 array, so that an optimiser needs one launch for all of
// them. The array has three parts: weights of convolutions and linear layers, which may decay;
// biases and the affine parameters of batch norms; running statistics, which are not trained. Where
// layers read 16-bit weights, a copy of the first part is stored so. Memory is the backend's, which
// must outlive the store.
class ParameterStore {
 public:
  // Copies the graph's values, which must be there (checked). `storage`: what layers read weights
  // as. Synchronises the stream. kResourceExhausted if the memory does not suffice.
  static absl::StatusOr<ParameterStore> Create(const NetworkGraph& graph, DType storage,
                                               const ExecutionContext& context);

  // [size of the parameter], f32.
  float* values(int parameter) { return values_.data() + offsets_[parameter]; }
  // The same of its gradient. Not for running statistics.
  float* gradients(int parameter) { return gradients_.data() + offsets_[parameter]; }
  // The weights of a convolution or linear layer as it reads them: [rows, last axis] in `storage`.
  ConstTensorView Weights(int parameter) const;
  // Their gradient, of the same shape, in f32.
  TensorView WeightGradients(int parameter);

  // What an optimiser steps: weights, and the other trained parameters.
  ParameterRange DecayedRange() { return {decayed_, values_.data(), gradients_.data()}; }
  ParameterRange UndecayedRange() {
    return {trained_ - decayed_, values_.data() + decayed_, gradients_.data() + decayed_};
  }
  // All trained parameters, and the padding between them, whose gradients are 0.
  int64_t trained_size() const { return trained_; }
  const float* all_gradients() const { return gradients_.data(); }
  float* all_gradients() { return gradients_.data(); }

  // Sets all gradients to 0. Queued.
  absl::Status ClearGradients(const ExecutionContext& context);
  // Renews the copy of the weights after a step. Queued.
  absl::Status StoreWeights(const ExecutionContext& context);

  // Values by parameter of the graph. Empty for parameters that an array does not hold.
  using Values = std::vector<std::vector<float>>;
  // Copy all values to and from the host. Both synchronise the stream.
  absl::StatusOr<Values> ToHost(const ExecutionContext& context) const;
  absl::Status FromHost(const Values& values, const ExecutionContext& context);
  // The same for another array of the layout of the trained parameters, such as a momentum.
  absl::StatusOr<Values> TrainedToHost(const Array<float>& array,
                                       const ExecutionContext& context) const;
  absl::Status TrainedFromHost(const Values& values, Array<float>& array,
                               const ExecutionContext& context) const;

  int64_t bytes() const { return values_.bytes() + gradients_.bytes() + stored_.bytes(); }

 private:
  // Parameters between their places in a flat array of `size` elements and arrays of their own.
  Values Split(const std::vector<float>& flat) const;
  std::vector<float> Join(const Values& values, int64_t size) const;

  DType storage_ = DType::kF32;
  Device device_;
  std::vector<int64_t> offsets_;   // by parameter, in elements
  std::vector<int64_t> sizes_;     // by parameter
  std::vector<int64_t> channels_;  // by parameter: the last axis
  int64_t decayed_ = 0, trained_ = 0;
  Array<float> values_, gradients_;  // [all], [trained]
  Array<char> stored_;               // [decayed] in `storage`; empty for f32
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_PARAMETER_STORE_H_
