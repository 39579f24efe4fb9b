// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_training_ops.h"

#include <algorithm>
#include <vector>

#include "voxconv/backends/cpu/column_sums.h"
#include "voxconv/backends/cpu/cpu_batch_norm.h"
#include "voxconv/backends/cpu/cpu_loss.h"
#include "voxconv/backends/cpu/cpu_lovasz.h"
#include "voxconv/backends/cpu/cpu_optimizer.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/training_checks.h"
#include "voxconv/core/training_step.h"

namespace voxconv {
namespace {

// f(row) for all rows, in parallel.
template <typename F>
void ForEachRow(const ConstTensorView& x, const ExecutionContext& context, const F& f) {
  ParallelRanges(context, x.rows, RowsPerTask(x.channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// Rows that one product of LinearWeightGradient sums.
constexpr int64_t kRowsPerProduct = 4096;

// The sum of the products of blocks of rows. A wave of blocks is computed in parallel, and added in
// the order of the rows.
absl::Status SumProducts(const ConstTensorView& x, const ConstTensorView& dy,
                         const TensorView& gradient, const ExecutionContext& context) {
  constexpr int64_t kBlocksPerWave = 16;  // not the number of threads: the order of sums is fixed
  const int64_t size = x.channels * dy.channels;
  VOXCONV_ASSIGN_OR_RETURN(Array<float> products,
                           AllocateArray<float>(kBlocksPerWave * size, context));
  std::fill_n(gradient.f32(), size, 0.0f);
  const int64_t rows_per_wave = kBlocksPerWave * kRowsPerProduct;
  for (int64_t first = 0; first < x.rows; first += rows_per_wave) {
    const int64_t rows = std::min(rows_per_wave, x.rows - first);
    ParallelRanges(context, rows, kRowsPerProduct, [&](int64_t begin, int64_t end) {
      SgemmTransposedSerial(x.channels, dy.channels, end - begin,
                            x.f32() + (first + begin) * x.channels,
                            dy.f32() + (first + begin) * dy.channels, ProductMode::kOverwrite,
                            products.data() + begin / kRowsPerProduct * size);
    });
    for (int64_t block = 0; block * kRowsPerProduct < rows; ++block) {
      const float* product = products.data() + block * size;
      for (int64_t i = 0; i < size; ++i) gradient.f32()[i] += product[i];
    }
  }
  return absl::OkStatus();
}

// Global pooling refuses rows of other samples. Their gradient is 0.
bool IsSample(int64_t sample, int64_t samples) { return sample >= 0 && sample < samples; }

// The gradient of sum and mean goes to every voxel of the sample.
void SpreadSamples(const Array<Coordinate>& rows, PoolMode mode, const ConstTensorView& dy,
                   const TensorView& dx, const ExecutionContext& context) {
  std::vector<int64_t> count(dy.rows, mode == PoolMode::kAveragePresent ? 0 : 1);
  if (mode == PoolMode::kAveragePresent) {
    for (const Coordinate& row : rows.host()) {
      if (IsSample(row.b, dy.rows)) ++count[row.b];
    }
  }
  ForEachRow(dx, context, [&](int64_t row) {
    const int32_t sample = rows.data()[row].b;
    float* to = dx.f32() + row * dx.channels;
    if (!IsSample(sample, dy.rows)) {
      std::fill_n(to, dx.channels, 0.0f);
      return;
    }
    const auto voxels = static_cast<float>(count[sample]);
    const float* from = dy.f32() + sample * dy.channels;
    for (int64_t c = 0; c < dx.channels; ++c) to[c] = from[c] / voxels;
  });
}

// The gradient of a maximum goes to the first voxel of the sample that has it.
void SpreadMaxima(const Array<Coordinate>& rows, const ConstTensorView& x, const ConstTensorView& y,
                  const ConstTensorView& dy, const TensorView& dx,
                  const ExecutionContext& context) {
  ParallelRanges(context, x.channels, 16, [&](int64_t begin, int64_t end) {
    std::vector<bool> taken(y.rows * (end - begin), false);
    for (int64_t row = 0; row < x.rows; ++row) {
      const int64_t sample = rows.data()[row].b;
      float* to = dx.f32() + row * x.channels;
      if (!IsSample(sample, y.rows)) {
        std::fill(to + begin, to + end, 0.0f);
        continue;
      }
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = sample * y.channels + c, slot = sample * (end - begin) + c - begin;
        const bool takes = !taken[slot] && x.f32()[row * x.channels + c] == y.f32()[at];
        if (takes) taken[slot] = true;
        to[c] = takes ? dy.f32()[at] : 0.0f;
      }
    }
  });
}

class CpuTrainingOps final : public TrainingOps {
 public:
  absl::Status ChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                              const ExecutionContext& context) override {
    return CpuChannelMoments(x, mean, deviation, context);
  }
  absl::Status SumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                             int64_t channels, double* sums, const ExecutionContext&) override {
    return CpuSumsOfMoments(mean, deviation, rows, channels, sums);
  }
  absl::Status MomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation,
                             const ExecutionContext&) override {
    return CpuMomentsOfSums(sums, channels, mean, deviation);
  }
  absl::Status BatchNormScale(const BatchNormBatch& batch, const ExecutionContext&) override {
    return CpuBatchNormScale(batch);
  }
  absl::Status BatchNormGradSums(const BatchNormGradArgs& args,
                                 const ExecutionContext& context) override {
    return CpuBatchNormGradSums(args, context);
  }
  absl::Status BatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                  const ExecutionContext& context) override {
    return CpuBatchNormInputGrad(args, dx, context);
  }

  absl::Status ReluGrad(const ConstTensorView& y, const ConstTensorView& dy, const TensorView& dx,
                        const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckReluGrad(y, dy, dx, *context.backend));
    const int64_t size = y.rows * y.channels;
    ParallelRanges(context, size, RowsPerTask(1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx.f32()[i] = y.f32()[i] > 0.0f ? dy.f32()[i] : 0.0f;
    });
    return absl::OkStatus();
  }

  absl::Status Split(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                     const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckSplit(y, a, b, *context.backend));
    ForEachRow(y, context, [&](int64_t row) {
      const float* from = y.f32() + row * y.channels;
      std::copy_n(from, a.channels, a.f32() + row * a.channels);
      std::copy_n(from + a.channels, b.channels, b.f32() + row * b.channels);
    });
    return absl::OkStatus();
  }

  absl::Status ColumnSums(const ConstTensorView& x, float* sums,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckColumnSums(x, sums, *context.backend));
    const std::vector<double> result =
        SumRows(context, x.rows, x.channels, [&](int64_t row, double* to) {
          const float* from = x.f32() + row * x.channels;
          for (int64_t c = 0; c < x.channels; ++c) to[c] += from[c];
        });
    std::copy(result.begin(), result.end(), sums);
    return absl::OkStatus();
  }

  absl::Status LinearWeightGradient(const ConstTensorView& x, const ConstTensorView& dy,
                                    Precision precision, const TensorView& gradient,
                                    const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(
        CheckLinearWeightGradient(x, dy, precision, gradient, *context.backend));
    return SumProducts(x, dy, gradient, context);
  }

  absl::Status Select(const ConstTensorView& x, const int32_t* switches, const TensorView& y,
                      const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckSelect(x, switches, y, *context.backend));
    ForEachRow(y, context, [&](int64_t row) {
      for (int64_t i = row * y.channels, c = 0; c < y.channels; ++i, ++c) {
        y.f32()[i] = switches[i] < 0 ? 0.0f : x.f32()[switches[i] * x.channels + c];
      }
    });
    return absl::OkStatus();
  }

  absl::Status GlobalPoolGrad(const Array<Coordinate>& rows, PoolMode mode,
                              const ConstTensorView& x, const ConstTensorView& y,
                              const ConstTensorView& dy, const TensorView& dx,
                              const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckGlobalPoolGrad(rows.size(), mode, x, y, dy, dx, *context.backend));
    if (mode == PoolMode::kMax) {
      SpreadMaxima(rows, x, y, dy, dx, context);
    } else {
      SpreadSamples(rows, mode, dy, dx, context);
    }
    return absl::OkStatus();
  }

  absl::Status Dropout(const ConstTensorView& x, double rate, const DropoutKey& key,
                       const TensorView& y, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDropout(x, rate, y, *context.backend));
    const uint64_t seed = key.shared_seed == nullptr ? key.seed : *key.shared_seed;
    const uint64_t kept_below = DropoutKeptBelow(rate);
    const auto factor = static_cast<float>(1.0 / (1.0 - rate));
    const int64_t size = x.rows * x.channels;
    ParallelRanges(context, size, RowsPerTask(1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y.f32()[i] = DropoutKeeps(seed, i, kept_below) ? x.f32()[i] * factor : 0.0f;
      }
    });
    return absl::OkStatus();
  }

  absl::Status CrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                            LossResult* result, const ExecutionContext& context) override {
    return CpuCrossEntropy(args, gradient, result, context);
  }
  absl::Status LovaszSoftmax(const LovaszArgs& args, const TensorView& gradient, LossResult* result,
                             const ExecutionContext& context) override {
    return CpuLovaszSoftmax(args, gradient, result, context);
  }

  absl::Status SquaredNorm(const float* values, int64_t size, double* norm,
                           const ExecutionContext& context) override {
    return CpuSquaredNorm(values, size, norm, context);
  }
  absl::Status PrepareStep(const StepRule& rule, const double* squared_norm, StepState* state,
                           const ExecutionContext&) override {
    return CpuPrepareStep(rule, squared_norm, state);
  }
  absl::Status Step(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                    const ExecutionContext& context) override {
    return CpuStep(step, parameters, state, context);
  }
  absl::Status Step(const AdamWStep& step, const ParameterRange& parameters, const StepState* state,
                    const ExecutionContext& context) override {
    return CpuStep(step, parameters, state, context);
  }

  absl::StatusOr<Buffer> HostMemory(int64_t bytes, const ExecutionContext& context) override {
    return context.backend->Allocate(bytes, *context.stream);  // the backend's memory is the host's
  }
};

}  // namespace

std::unique_ptr<TrainingOps> MakeCpuTrainingOps() { return std::make_unique<CpuTrainingOps>(); }

}  // namespace voxconv
