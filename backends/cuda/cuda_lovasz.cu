// SPDX-License-Identifier: Apache-2.0
// Lovász-softmax: the errors of all rows in a class, sorted from the largest, give the derivative
// of the loss by each error (Berman et al., 2018, Algorithm 1). With f rows of the class and b
// others up to and including a row, and g rows of the class in all, Jaccard's loss grows at that
// row by 1 / (g + b) if the row is of the class, else by (g - f) / ((g + b - 1) * (g + b)). So only
// counts are needed, which are exact. Sums of losses are f64 in an order that depends on the shape
// alone, and the sort is stable.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_lovasz.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/softmax_rows.cuh"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

constexpr int kBlock = kLossBlock;
constexpr int64_t kMostBlocks = 1056;  // eight for each multiprocessor of an H100
constexpr int64_t kErrorsPerSort = int64_t{1} << 21;

// Keys ascend where errors fall. The bits of a float in [0, 1] ascend with it.
constexpr uint32_t kLargestError = 0x3f800000;  // the bits of 1.0f
constexpr int kErrorBits = 30;
constexpr uint64_t kIgnoredKey = (uint64_t{1} << kErrorBits) - 1;  // behind all errors

// What a block of rows counts.
struct RowCounts {
  int64_t rows = 0, correct = 0, bad = 0;
};
struct AddCounts {
  __device__ RowCounts operator()(const RowCounts& a, const RowCounts& b) const {
    return {a.rows + b.rows, a.correct + b.correct, a.bad + b.bad};
  }
};
struct AddNumbers {
  template <typename T>
  __device__ T operator()(const T& a, const T& b) const {
    return a + b;
  }
};

// Of a row's softmax: p[c] = exp(logit[c] - largest) / sum.
struct RowSoftmax {
  float largest, sum;

  __device__ float Probability(float logit) const { return expf(logit - largest) / sum; }
};

// The arguments on the device.
struct Labels {
  const int32_t* labels;
  int32_t ignored;
  int64_t rows, classes;

  __device__ bool IsClass(int32_t label) const { return label >= 0 && label < classes; }
  __device__ bool Counts(int32_t label) const { return label != ignored && IsClass(label); }
};

// The row that `lanes` threads work on in one round of a grid's rows.
struct OwnRow {
  int64_t row;
  bool is_row;  // others repeat the last row, because all lanes must exchange values

  __device__ OwnRow(int64_t first, int lanes, int64_t rows) {
    const int64_t own = first + threadIdx.x / lanes;
    is_row = own < rows;
    row = is_row ? own : rows - 1;
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlock)
    SoftmaxRows(Labels labels, const T* logits, int lanes, RowSoftmax* softmax, RowCounts* counts) {
  RowCounts count;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t rows_per_block = kBlock / lanes;
  for (int64_t first = blockIdx.x * rows_per_block; first < labels.rows;
       first += gridDim.x * rows_per_block) {
    const OwnRow own(first, lanes, labels.rows);
    const LogitRow<T> values(logits + own.row * labels.classes, labels.classes, lane);
    const auto [largest, sum] = SoftmaxSumsOf(values, labels.classes, lane, lanes);
    if (!own.is_row || lane != 0) continue;
    softmax[own.row] = {largest.logit, sum};
    const int32_t label = labels.labels[own.row];
    if (labels.Counts(label)) {
      ++count.rows;
      if (largest.index == label) ++count.correct;
    } else if (label != labels.ignored) {
      ++count.bad;
    }
  }
  count = BlockSum(count, AddCounts{});
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// Some neighbouring classes, whose errors are sorted together. Element i is row i % rows in class
// first + i / rows. There are fewer than 2^31 elements.
struct Classes {
  int64_t first, count, rows;

  __host__ __device__ int64_t size() const { return count * rows; }
  __device__ int64_t ClassOf(int64_t i) const {
    return first + static_cast<uint32_t>(i) / static_cast<uint32_t>(rows);
  }
  __device__ int64_t RowOf(int64_t i) const {
    return static_cast<uint32_t>(i) % static_cast<uint32_t>(rows);
  }
};

// The error of a row that counts.
template <typename T>
__device__ float ErrorOf(const Labels& labels, const T* logits, const RowSoftmax* softmax,
                         int64_t row, int64_t c) {
  const float p = softmax[row].Probability(Widen(logits[row * labels.classes + c]));
  return labels.labels[row] == c ? 1.0f - p : p;
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    ErrorKeys(Labels labels, const T* logits, const RowSoftmax* softmax, Classes classes,
              uint64_t* keys, int32_t* elements) {
  const int64_t i = GlobalThread();
  if (i >= classes.size()) return;
  const int64_t row = classes.RowOf(i), c = classes.ClassOf(i);
  uint64_t key = kIgnoredKey;
  if (labels.Counts(labels.labels[row])) {
    const float error = ErrorOf(labels, logits, softmax, row, c);
    // A NaN is in front of all.
    key = error >= 0.0f && error <= 1.0f ? kLargestError - __float_as_uint(error) : 0;
  }
  keys[i] = static_cast<uint64_t>(c - classes.first) << kErrorBits | key;
  elements[i] = static_cast<int32_t>(i);
}

// flags[i]: whether the row of the i-th error is of the class, for i < size; flags[size] is 0.
__global__ void __launch_bounds__(kBlock)
    FlagOwnClass(Labels labels, Classes classes, const int32_t* elements, int32_t* flags) {
  const int64_t i = GlobalThread();
  if (i > classes.size()) return;
  if (i == classes.size()) {
    flags[i] = 0;
    return;
  }
  const int32_t label = labels.labels[classes.RowOf(elements[i])];
  flags[i] = labels.Counts(label) && label == classes.ClassOf(elements[i]) ? 1 : 0;
}

// The derivative of the loss by p, times the number of classes that are present: slopes[row, c].
// `before`: the exclusive sums of the flags, [size + 1]. Writes how many rows each class has, and a
// partial sum of the losses for each block.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    Slopes(Labels labels, const T* logits, const RowSoftmax* softmax, Classes classes,
           const int32_t* elements, const int64_t* before, float* slopes, int64_t* class_rows,
           double* losses) {
  double loss = 0;
  const int64_t stride = int64_t{gridDim.x} * kBlock;
  for (int64_t i = GlobalThread(); i < classes.size(); i += stride) {
    // The sort keeps each class where it was.
    const int64_t row = classes.RowOf(elements[i]), c = classes.ClassOf(i);
    const int64_t begin = (c - classes.first) * classes.rows;
    const int64_t of_class = before[begin + classes.rows] - before[begin];
    if (i == begin) class_rows[c] = of_class;
    if (of_class == 0 || !labels.Counts(labels.labels[row])) {
      slopes[row * labels.classes + c] = 0.0f;
      continue;
    }
    const int64_t found = before[i + 1] - before[begin];
    const bool is_own = before[i + 1] > before[i];
    const double all = static_cast<double>(of_class + (i - begin + 1 - found));
    const double growth =
        is_own ? 1.0 / all : static_cast<double>(of_class - found) / ((all - 1.0) * all);
    loss += growth * ErrorOf(labels, logits, softmax, row, c);
    slopes[row * labels.classes + c] = static_cast<float>(is_own ? -growth : growth);
  }
  loss = BlockSum(loss, AddNumbers{});
  if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

// *present: the number of classes that a row has.
__global__ void __launch_bounds__(kBlock)
    SumLovasz(const int64_t* class_rows, int64_t classes, const double* losses, int64_t num_losses,
              const RowCounts* counts, int num_counts, bool adds, double* present,
              LossResult* result) {
  const int thread = static_cast<int>(threadIdx.x);
  int64_t found = 0;
  for (int64_t c = thread; c < classes; c += kBlock) found += class_rows[c] > 0 ? 1 : 0;
  found = BlockSum(found, AddNumbers{});
  double loss = 0;
  for (int64_t i = thread; i < num_losses; i += kBlock) loss += losses[i];
  loss = BlockSum(loss, AddNumbers{});
  RowCounts count;
  for (int i = thread; i < num_counts; i += kBlock) count = AddCounts{}(count, counts[i]);
  count = BlockSum(count, AddCounts{});
  if (thread != 0) return;
  const auto weight = static_cast<double>(found);
  *present = weight;
  const double mean = found > 0 ? loss / weight : 0.0;
  if (adds) {
    result->loss += mean;
    return;
  }
  result->loss = mean;
  result->weight = weight;
  result->rows = count.rows;
  result->correct = count.correct;
  result->bad_labels = count.bad;
}

// Through the softmax: the derivative by logit c is p[c] * (slope[c] - sum over d of slope[d] *
// p[d]).
template <typename T>
__global__ void __launch_bounds__(kBlock)
    LogitGradients(Labels labels, const T* logits, const RowSoftmax* softmax, const float* slopes,
                   const double* present, const float* gradient_scale, int lanes, bool adds,
                   T* gradient) {
  const float factor = (gradient_scale == nullptr ? 1.0f : *gradient_scale) /
                       static_cast<float>(*present > 0 ? *present : 1.0);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t classes = labels.classes, rows_per_block = kBlock / lanes;
  for (int64_t first = blockIdx.x * rows_per_block; first < labels.rows;
       first += gridDim.x * rows_per_block) {
    const OwnRow own(first, lanes, labels.rows);
    const LogitRow<T> values(logits + own.row * classes, classes, lane);
    const RowSoftmax sums = softmax[own.row];
    const float* slope = slopes + own.row * classes;
    float mean = 0;
    for (int64_t c = lane; c < classes; c += lanes) {
      mean += slope[c] * sums.Probability(values[c]);
    }
    mean = SumOf(mean, lanes);
    if (!own.is_row) continue;
    const bool counts = labels.Counts(labels.labels[own.row]);
    const bool is_finite = isfinite(sums.largest) && isfinite(sums.sum);
    T* const to = gradient + own.row * classes;
    for (int64_t c = lane; c < classes; c += lanes) {
      float value = 0;
      if (counts) value = sums.Probability(values[c]) * (slope[c] - mean) * factor;
      if (counts && !is_finite) value = std::numeric_limits<float>::quiet_NaN();
      to[c] = Narrow<T>(adds ? Widen(to[c]) + value : value);
    }
  }
}

// The temporary arrays of one sort.
struct SortArrays {
  Array<uint64_t> keys, sorted_keys;
  Array<int32_t> elements, sorted_elements;
  Array<int64_t> before;

  static absl::StatusOr<SortArrays> Create(int64_t size, const ExecutionContext& context) {
    SortArrays arrays;
    VOXCONV_ASSIGN_OR_RETURN(arrays.keys, AllocateArray<uint64_t>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(arrays.sorted_keys, AllocateArray<uint64_t>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(arrays.elements, AllocateArray<int32_t>(size + 1, context));
    VOXCONV_ASSIGN_OR_RETURN(arrays.sorted_elements, AllocateArray<int32_t>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(arrays.before, AllocateArray<int64_t>(size + 1, context));
    return arrays;
  }
};

template <typename T>
absl::Status Run(const LovaszArgs& args, const TensorView& gradient, LossResult* result,
                 const ExecutionContext& context) {
  const int64_t rows = args.logits.rows, classes = args.logits.channels;
  const Labels labels{args.labels, args.ignored, rows, classes};
  const T* const logits = static_cast<const T*>(args.logits.data);
  const int lanes = LanesOfRow(classes);
  const int row_blocks = static_cast<int>(std::min(kMostBlocks, CeilDiv(rows, kBlock / lanes)));
  const int64_t per_sort =
      std::clamp<int64_t>(kErrorsPerSort / std::max<int64_t>(rows, 1), 1, classes);
  const int64_t sorts = rows == 0 ? 0 : CeilDiv(classes, per_sort);
  const int64_t blocks = std::min(kMostBlocks, CeilDiv(per_sort * rows, kBlock));

  VOXCONV_ASSIGN_OR_RETURN(Array<RowSoftmax> softmax, AllocateArray<RowSoftmax>(rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<RowCounts> counts, AllocateArray<RowCounts>(row_blocks, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> slopes, AllocateArray<float>(rows * classes, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> class_rows, AllocateArray<int64_t>(classes, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<double> losses, AllocateArray<double>(sorts * blocks, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<double> present, AllocateArray<double>(1, context));
  VOXCONV_ASSIGN_OR_RETURN(SortArrays arrays,
                           SortArrays::Create(sorts == 0 ? 0 : per_sort * rows, context));

  VOXCONV_LAUNCH(SoftmaxRows<T>, dim3(row_blocks), kBlock, 0, context, labels, logits, lanes,
                 softmax.data(), counts.data());
  for (int64_t sort = 0; sort < sorts; ++sort) {
    const int64_t first = sort * per_sort;
    const Classes some{first, std::min(per_sort, classes - first), rows};
    VOXCONV_LAUNCH(ErrorKeys<T>, GridFor(some.size(), kBlock), kBlock, 0, context, labels, logits,
                   softmax.data(), some, arrays.keys.data(), arrays.elements.data());
    VOXCONV_RETURN_IF_ERROR(SortByKey(arrays.keys.data(), arrays.sorted_keys.data(),
                                      arrays.elements.data(), arrays.sorted_elements.data(),
                                      some.size(), kErrorBits + BitsFor(some.count), context));
    // From here on, the unsorted elements' array holds the flags.
    VOXCONV_LAUNCH(FlagOwnClass, GridFor(some.size() + 1, kBlock), kBlock, 0, context, labels, some,
                   arrays.sorted_elements.data(), arrays.elements.data());
    VOXCONV_RETURN_IF_ERROR(
        ExclusiveSum(arrays.elements.data(), arrays.before.data(), some.size() + 1, context));
    VOXCONV_LAUNCH(Slopes<T>, dim3(static_cast<unsigned>(blocks)), kBlock, 0, context, labels,
                   logits, softmax.data(), some, arrays.sorted_elements.data(),
                   arrays.before.data(), slopes.data(), class_rows.data(),
                   losses.data() + sort * blocks);
  }
  VOXCONV_LAUNCH(SumLovasz, dim3(1), kBlock, 0, context, class_rows.data(), rows == 0 ? 0 : classes,
                 losses.data(), sorts * blocks, counts.data(), row_blocks, args.adds,
                 present.data(), result);
  VOXCONV_LAUNCH(LogitGradients<T>, dim3(row_blocks), kBlock, 0, context, labels, logits,
                 softmax.data(), slopes.data(), present.data(), args.gradient_scale, lanes,
                 args.adds, static_cast<T*>(gradient.data));
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                               LossResult* result, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckLovaszSoftmax(args, gradient, result, *context.backend));
  return WithStoredType(args.logits.dtype,
                        [&]<typename T>() { return Run<T>(args, gradient, result, context); });
}

}  // namespace voxconv
