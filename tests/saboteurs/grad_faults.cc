// SPDX-License-Identifier: Apache-2.0
// Faults of gradients and of poolings.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/saboteurs/faults.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::testing {
namespace {

using Values = std::vector<float>;
using What = GradCall::What;

// Changes the results of the calls of one kind.
GradFault Changes(What what, std::function<void(const GradCall&, Values&)> change) {
  return [what, change = std::move(change)](const GradCall& call) -> absl::Status {
    VOXCONV_RETURN_IF_ERROR(call.RunRight());
    if (call.what != what) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(Values values, ToHost(call.result, call.context));
    if (values.empty()) return absl::OkStatus();
    change(call, values);
    return Overwrite(call.result, values, call.context);
  };
}

// A tile of 16 rows and 16 channels was never computed: the last of the matrix.
void LoseTile(const GradCall& call, Values& values) {
  const int64_t rows = call.result.rows, channels = call.result.channels;
  for (int64_t row = std::max<int64_t>(0, rows - 16); row < rows; ++row) {
    const int64_t lost = std::min<int64_t>(channels, 16);
    std::fill_n(values.begin() + (row + 1) * channels - lost, lost, 0.0f);
  }
}

// The matrices [C_in, C_out] of all offsets lie there as [C_out, C_in].
Values TransposedMatrices(const Values& values, int64_t offsets, int64_t c_out) {
  const int64_t c_in = static_cast<int64_t>(values.size()) / (offsets * c_out);
  Values transposed(values.size());
  for (int64_t k = 0; k < offsets; ++k) {
    for (int64_t i = 0; i < c_in; ++i) {
      for (int64_t o = 0; o < c_out; ++o) {
        transposed[(k * c_out + o) * c_in + i] = values[(k * c_in + i) * c_out + o];
      }
    }
  }
  return transposed;
}

// Offset k has what is offset K-1-k's: the map was transposed, and the offsets were not negated.
Values NegatedOffsets(const Values& values, int64_t offsets, int64_t /*c_out*/) {
  const auto matrix = static_cast<int64_t>(values.size()) / offsets;
  Values negated;
  for (int64_t k = offsets - 1; k >= 0; --k) {
    negated.insert(negated.end(), values.begin() + k * matrix, values.begin() + (k + 1) * matrix);
  }
  return negated;
}

using Reorder = Values (*)(const Values& values, int64_t offsets, int64_t c_out);

// A weight gradient in a wrong order.
GradFault WeightGradIn(Reorder reorder) {
  return Changes(What::kWeightGrad, [reorder](const GradCall& call, Values& values) {
    values = reorder(values, call.num_offsets, call.result.channels);
  });
}

// An input gradient that reads its weights in a wrong order.
GradFault InputGradOf(Reorder reorder) {
  return [reorder](GradCall call) -> absl::Status {
    if (call.what != What::kInputGrad) return call.RunRight();
    VOXCONV_ASSIGN_OR_RETURN(Values values, ToHost(call.weights, call.context));
    values = reorder(values, call.num_offsets, call.weights.channels);
    VOXCONV_ASSIGN_OR_RETURN(const Tensor weights,
                             Tensor::FromHost(values, call.weights.rows, call.weights.channels,
                                              call.context, call.weights.dtype));
    call.weights = weights.view();
    VOXCONV_RETURN_IF_ERROR(call.RunRight());
    return call.context.stream->Synchronize();
  };
}

// A sum over pairs that is split leaves out its last part: here the last offset's.
void LoseLastOffset(const GradCall& call, Values& values) {
  const auto matrix = static_cast<int64_t>(values.size()) / call.num_offsets;
  std::fill(values.end() - matrix, values.end(), 0.0f);
}

// A window's first value counts twice.
void ScaleFirst(const GradCall&, Values& values) {
  const auto first = std::find_if(values.begin(), values.end(), [](float v) { return v != 0; });
  if (first != values.end()) *first *= 2;
}

}  // namespace

std::vector<NamedFault<GradFault>> GradFaults() {
  const std::vector<Precision> all = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                      Precision::kBF16};
  return {
      {"input_grad_loses_a_tile", Changes(What::kInputGrad, LoseTile), all},
      {"input_grad_of_transposed_weights", InputGradOf(TransposedMatrices), all},
      {"input_grad_of_negated_offsets", InputGradOf(NegatedOffsets), all},
      {"weight_grad_loses_a_tile", Changes(What::kWeightGrad, LoseTile), all},
      {"weight_grad_is_transposed", WeightGradIn(TransposedMatrices), all},
      {"weight_grad_of_negated_offsets", WeightGradIn(NegatedOffsets), all},
      {"weight_grad_loses_an_offset", Changes(What::kWeightGrad, LoseLastOffset), all},
  };
}

std::vector<NamedFault<GradFault>> PoolFaults() {
  const std::vector<Precision> f32 = {Precision::kF32};
  return {
      {"pool_loses_a_tile", Changes(What::kPool, LoseTile), f32},
      {"pool_counts_a_value_twice", Changes(What::kPool, ScaleFirst), f32},
      {"unpool_loses_a_tile", Changes(What::kUnpool, LoseTile), f32},
      {"unpool_counts_a_value_twice", Changes(What::kUnpool, ScaleFirst), f32},
  };
}

}  // namespace voxconv::testing
