// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy in three kernels, because a row's gradient needs the weight of all rows:
// the labels' weights first, then losses and gradients, then the sums. Partial sums are f64, and
// their number and order depend on the shape alone.
#include <algorithm>
#include <limits>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_loss.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/softmax_rows.cuh"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

constexpr int kBlock = kLossBlock;
// A block of the second kernel has one thread for each partial sum of the first.
constexpr int64_t kMostLabelBlocks = kBlock;
constexpr int64_t kLabelsPerThread = 4;
constexpr int64_t kMostRowBlocks = 1056;  // eight for each multiprocessor of an H100

// What a block of labels gives.
struct LabelSums {
  double weight = 0;
  int64_t rows = 0, bad = 0;
};
// What a block of rows gives.
struct RowSums {
  double loss = 0;
  int64_t correct = 0;
};

struct AddSums {
  __device__ LabelSums operator()(const LabelSums& a, const LabelSums& b) const {
    return {a.weight + b.weight, a.rows + b.rows, a.bad + b.bad};
  }
  __device__ RowSums operator()(const RowSums& a, const RowSums& b) const {
    return {a.loss + b.loss, a.correct + b.correct};
  }
  __device__ double operator()(double a, double b) const { return a + b; }
};

// The arguments on the device.
struct Labels {
  const int32_t* labels;
  const float* class_weights;  // may be null
  int32_t ignored;
  int64_t rows, classes;

  __device__ float WeightOf(int64_t c) const {
    return class_weights == nullptr ? 1.0f : class_weights[c];
  }
  __device__ bool IsClass(int32_t label) const { return label >= 0 && label < classes; }
};

// partial: one for each block. *all_weights: the sum over all classes.
__global__ void __launch_bounds__(kBlock)
    SumLabels(Labels labels, LabelSums* partial, double* all_weights) {
  LabelSums sums;
  for (int64_t row = GlobalThread(); row < labels.rows; row += int64_t{gridDim.x} * kBlock) {
    const int32_t label = labels.labels[row];
    if (label == labels.ignored) continue;
    if (!labels.IsClass(label)) {
      ++sums.bad;
      continue;
    }
    sums.weight += labels.WeightOf(label);
    ++sums.rows;
  }
  sums = BlockSum(sums, AddSums{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sums;
  if (blockIdx.x != 0) return;
  double weight = 0;
  for (int64_t c = threadIdx.x; c < labels.classes; c += kBlock) weight += labels.WeightOf(c);
  weight = BlockSum(weight, AddSums{});
  if (threadIdx.x == 0) *all_weights = weight;
}

// What all rows share.
struct Smoothing {
  float label, spread;  // 1 - smoothing, and smoothing / classes
};

// Writes the gradients of rows, and partial sums for each block. With smoothing s, a row of label t
// has the target (1 - s) * weight[t] at class t, and s / classes * weight[c] at every class c.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    LossRows(Labels labels, const T* logits, Smoothing smoothing, const float* gradient_scale,
             const LabelSums* label_sums, int label_blocks, const double* all_weights, int lanes,
             RowSums* partial, T* gradient) {
  __shared__ double weight;
  const int thread = static_cast<int>(threadIdx.x);
  const double sum_of_weights =
      BlockSum(thread < label_blocks ? label_sums[thread].weight : 0.0, AddSums{});
  if (thread == 0) weight = sum_of_weights;
  __syncthreads();
  const bool any_counts = weight > 0;
  const float factor =
      (gradient_scale == nullptr ? 1.0f : *gradient_scale) / static_cast<float>(weight);
  const float spread_weight = smoothing.spread * static_cast<float>(*all_weights);

  RowSums sums;
  const int lane = thread % lanes;
  const int64_t classes = labels.classes, rows_per_block = kBlock / lanes;
  for (int64_t first = blockIdx.x * rows_per_block; first < labels.rows;
       first += gridDim.x * rows_per_block) {
    // Lanes without a row of their own repeat the last one, because all lanes must exchange values.
    const int64_t own_row = first + thread / lanes;
    const bool is_row = own_row < labels.rows;
    const int64_t row = is_row ? own_row : labels.rows - 1;
    const int32_t label = labels.labels[row];
    const bool counts = any_counts && label != labels.ignored && labels.IsClass(label);
    const LogitRow<T> values(logits + row * classes, classes, lane);

    const auto [largest, sum] = SoftmaxSumsOf(values, classes, lane, lanes);
    // From here on, logits are relative to the largest.
    const float log_sum = logf(sum);
    const float own = counts ? smoothing.label * labels.WeightOf(label) : 0.0f;
    const float all = own + spread_weight;
    float loss = 0;
    T* const to = gradient + row * classes;
    for (int64_t c = lane; c < classes; c += lanes) {
      const float logit = values[c] - largest.logit;
      const float part = smoothing.spread * labels.WeightOf(c);
      if (part > 0) loss += part * (log_sum - logit);
      if (c == label) loss += own * (log_sum - logit);
      const float target = part + (c == label ? own : 0.0f);
      const float value = (all * expf(logit - log_sum) - target) * factor;
      if (is_row) to[c] = Narrow<T>(counts ? value : 0.0f);
    }
    loss = SumOf(loss, lanes);
    if (!is_row || !counts) continue;
    if (!isfinite(loss)) {
      for (int64_t c = lane; c < classes; c += lanes) {
        to[c] = Narrow<T>(std::numeric_limits<float>::quiet_NaN());
      }
    }
    if (lane != 0) continue;
    sums.loss += loss;
    if (largest.index == label) ++sums.correct;
  }
  sums = BlockSum(sums, AddSums{});
  if (thread == 0) partial[blockIdx.x] = sums;
}

__global__ void __launch_bounds__(kBlock)
    SumLoss(const LabelSums* label_sums, int label_blocks, const RowSums* row_sums, int row_blocks,
            LossResult* result) {
  LabelSums labels;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < label_blocks) labels = label_sums[thread];
  labels = BlockSum(labels, AddSums{});
  RowSums rows;
  for (int i = thread; i < row_blocks; i += kBlock) {
    rows = AddSums{}(rows, row_sums[i]);
  }
  rows = BlockSum(rows, AddSums{});
  if (thread != 0) return;
  result->loss = labels.weight > 0 ? rows.loss / labels.weight : 0.0;
  result->weight = labels.weight;
  result->rows = labels.rows;
  result->correct = rows.correct;
  result->bad_labels = labels.bad;
}

}  // namespace

absl::Status CudaCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                              LossResult* result, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckCrossEntropy(args, gradient, result, *context.backend));
  const int64_t rows = args.logits.rows, classes = args.logits.channels;
  const Labels labels{args.labels, args.class_weights, args.ignored, rows, classes};
  const Smoothing smoothing{static_cast<float>(1.0 - args.smoothing),
                            static_cast<float>(args.smoothing / static_cast<double>(classes))};
  const int lanes = LanesOfRow(classes);
  const int label_blocks =
      static_cast<int>(std::min(kMostLabelBlocks, CeilDiv(rows, kBlock * kLabelsPerThread)));
  const int row_blocks = static_cast<int>(std::min(kMostRowBlocks, CeilDiv(rows, kBlock / lanes)));
  VOXCONV_ASSIGN_OR_RETURN(Array<LabelSums> label_sums,
                           AllocateArray<LabelSums>(label_blocks, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<RowSums> row_sums, AllocateArray<RowSums>(row_blocks, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<double> all_weights, AllocateArray<double>(1, context));
  VOXCONV_LAUNCH(SumLabels, dim3(label_blocks), kBlock, 0, context, labels, label_sums.data(),
                 all_weights.data());
  VOXCONV_RETURN_IF_ERROR(WithStoredType(args.logits.dtype, [&]<typename T>() {
    VOXCONV_LAUNCH(LossRows<T>, dim3(row_blocks), kBlock, 0, context, labels,
                   static_cast<const T*>(args.logits.data), smoothing, args.gradient_scale,
                   label_sums.data(), label_blocks, all_weights.data(), lanes, row_sums.data(),
                   static_cast<T*>(gradient.data));
    return absl::OkStatus();
  }));
  VOXCONV_LAUNCH(SumLoss, dim3(1), kBlock, 0, context, label_sums.data(), label_blocks,
                 row_sums.data(), row_blocks, result);
  return absl::OkStatus();
}

}  // namespace voxconv
