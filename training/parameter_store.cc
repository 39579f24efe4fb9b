// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/parameter_store.h"

#include <algorithm>

#include "voxconv/core/check.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {
namespace {

// Each parameter begins at a multiple of 256 bytes in f32, and of 128 in 16 bits, as kernels with
// wide loads want it.
constexpr int64_t kAlignment = 64;

// In which part of the array a parameter lies.
int PartOf(Parameter::Role role) {
  switch (role) {
    case Parameter::Role::kWeight:
      return 0;
    case Parameter::Role::kBias:
    case Parameter::Role::kGamma:
    case Parameter::Role::kBeta:
      return 1;
    case Parameter::Role::kMean:
    case Parameter::Role::kVariance:
      return 2;
  }
  return 0;
}

}  // namespace

absl::StatusOr<ParameterStore> ParameterStore::Create(const NetworkGraph& graph, DType storage,
                                                      const ExecutionContext& context) {
  ParameterStore store;
  store.storage_ = storage;
  store.device_ = context.backend->device();
  const std::vector<Parameter>& parameters = graph.parameters();
  store.offsets_.resize(parameters.size());
  int64_t end = 0;
  for (int part = 0; part < 3; ++part) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (PartOf(parameters[i].role) != part) continue;
      store.offsets_[i] = end;
      end += (parameters[i].size() + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (part == 0) store.decayed_ = end;
    if (part == 1) store.trained_ = end;
  }
  for (const Parameter& parameter : parameters) {
    store.sizes_.push_back(parameter.size());
    store.channels_.push_back(parameter.shape.back());
  }
  VOXCONV_ASSIGN_OR_RETURN(store.values_, AllocateArray<float>(end, context));
  VOXCONV_ASSIGN_OR_RETURN(store.gradients_, AllocateArray<float>(store.trained_, context));
  if (storage != DType::kF32) {
    VOXCONV_ASSIGN_OR_RETURN(store.stored_,
                             AllocateArray<char>(store.decayed_ * SizeOf(storage), context));
  }
  Values values;
  for (const Parameter& parameter : parameters) values.push_back(parameter.values);
  VOXCONV_RETURN_IF_ERROR(store.FromHost(values, context));
  VOXCONV_RETURN_IF_ERROR(store.ClearGradients(context));
  return store;
}

ConstTensorView ParameterStore::Weights(int parameter) const {
  const int64_t offset = offsets_[parameter], channels = channels_[parameter];
  VOXCONV_CHECK(offset < decayed_);
  const void* data = storage_ == DType::kF32 ? static_cast<const void*>(values_.data() + offset)
                                             : stored_.data() + offset * SizeOf(storage_);
  return {data, sizes_[parameter] / channels, channels, storage_, device_};
}

TensorView ParameterStore::WeightGradients(int parameter) {
  const int64_t channels = channels_[parameter];
  return {gradients(parameter), sizes_[parameter] / channels, channels, DType::kF32, device_};
}

absl::Status ParameterStore::ClearGradients(const ExecutionContext& context) {
  return context.backend->FillBytes(gradients_.data(), 0, gradients_.bytes(), *context.stream);
}

absl::Status ParameterStore::StoreWeights(const ExecutionContext& context) {
  if (storage_ == DType::kF32 || decayed_ == 0) return absl::OkStatus();
  const ConstTensorView from{values_.data(), decayed_ / kAlignment, kAlignment, DType::kF32,
                             device_};
  const TensorView to{stored_.data(), decayed_ / kAlignment, kAlignment, storage_, device_};
  return context.backend->tensor_ops().Convert(from, to, context);
}

ParameterStore::Values ParameterStore::Split(const std::vector<float>& flat) const {
  Values values(offsets_.size());
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] >= static_cast<int64_t>(flat.size())) continue;
    values[i].assign(flat.begin() + offsets_[i], flat.begin() + offsets_[i] + sizes_[i]);
  }
  return values;
}

std::vector<float> ParameterStore::Join(const Values& values, int64_t size) const {
  std::vector<float> flat(size, 0.0f);
  VOXCONV_CHECK(values.size() == offsets_.size());
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] >= size) continue;
    VOXCONV_CHECK(static_cast<int64_t>(values[i].size()) == sizes_[i]);
    std::copy(values[i].begin(), values[i].end(), flat.begin() + offsets_[i]);
  }
  return flat;
}

absl::StatusOr<ParameterStore::Values> ParameterStore::ToHost(
    const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> flat, CopyToHost(values_, context));
  return Split(flat);
}

absl::Status ParameterStore::FromHost(const Values& values, const ExecutionContext& context) {
  const std::vector<float> flat = Join(values, values_.size());
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(values_.data(), values_.space(), flat.data(),
                                                MemorySpace::kHost, values_.bytes(),
                                                *context.stream));
  VOXCONV_RETURN_IF_ERROR(StoreWeights(context));
  return context.stream->Synchronize();
}

absl::StatusOr<ParameterStore::Values> ParameterStore::TrainedToHost(
    const Array<float>& array, const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> flat, CopyToHost(array, context));
  return Split(flat);
}

absl::Status ParameterStore::TrainedFromHost(const Values& values, Array<float>& array,
                                             const ExecutionContext& context) const {
  const std::vector<float> flat = Join(values, array.size());
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(array.data(), array.space(), flat.data(),
                                                MemorySpace::kHost, array.bytes(),
                                                *context.stream));
  return context.stream->Synchronize();
}

}  // namespace voxconv
