// SPDX-License-Identifier: Apache-2.0
// Gradients of the operators that have no kernel map, and of the losses, against sums in fp64.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/core/training_step.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"
#include "voxconv/training/reference_loss.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/operator_bench.h"

namespace voxconv::verify {
namespace {

constexpr int64_t kRows = 1003, kChannels = 37;
constexpr float kGradientScale = 64;  // of losses, so that 16 bits hold their gradients

absl::Status Relu(const Bench& bench) {
  std::vector<float> y = bench.Random(kRows * kChannels, 61);
  for (float& v : y) v = std::max(v, 0.0f);
  const std::vector<float> dy = bench.Random(kRows * kChannels, 62);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor ty, bench.Upload(y, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kRows, kChannels));
  VOXCONV_RETURN_IF_ERROR(bench.ops().ReluGrad(ty.view(), tdy.view(), dx.view(), bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
  std::vector<Expectation> expected(dy.size());
  for (size_t i = 0; i < dy.size(); ++i) expected[i].value = y[i] > 0 ? dy[i] : 0;
  return bench.Compare("dx", values, expected, 0);
}

// A sum gives both summands its gradient. A tensor that two layers read gets the sum of theirs.
absl::Status Add(const Bench& bench) {
  const std::vector<float> a = bench.Random(kRows * kChannels, 76);
  const std::vector<float> b = bench.Random(kRows * kChannels, 77);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor ta, bench.Upload(a, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tb, bench.Upload(b, kChannels));
  std::vector<Expectation> expected(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    expected[i] = {double{a[i]} + b[i], std::abs(double{a[i]}) + std::abs(b[i])};
  }
  VOXCONV_ASSIGN_OR_RETURN(const Tensor sum, bench.Result(kRows, kChannels));
  // The last one onto one of the summands, as training adds where no other layer reads it.
  for (const TensorView& result : {sum.view(), ta.view()}) {
    VOXCONV_RETURN_IF_ERROR(
        bench.dense().Add(ta.view(), tb.view(), /*relu=*/false, result, bench.context()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, ToHost(result, bench.context()));
    VOXCONV_RETURN_IF_ERROR(bench.Compare("sum", values, expected, 0x1p-24));
  }
  return absl::OkStatus();
}

absl::Status Concat(const Bench& bench) {
  constexpr int64_t kA = 5;
  const std::vector<float> dy = bench.Random(kRows * kChannels, 63);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor a, bench.Result(kRows, kA));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor b, bench.Result(kRows, kChannels - kA));
  VOXCONV_RETURN_IF_ERROR(bench.ops().Split(tdy.view(), a.view(), b.view(), bench.context()));
  std::vector<Expectation> of_a, of_b;
  for (int64_t i = 0; i < kRows * kChannels; ++i) {
    (i % kChannels < kA ? of_a : of_b).push_back({dy[i], 0});
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values_a, a.ToHost(bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values_b, b.ToHost(bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.Compare("a", values_a, of_a, 0));
  return bench.Compare("b", values_b, of_b, 0);
}

absl::Status Bias(const Bench& bench) {
  const std::vector<float> dy = bench.Random(kRows * kChannels, 64);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> sums, bench.Vector(std::vector<float>(kChannels)));
  VOXCONV_RETURN_IF_ERROR(bench.ops().ColumnSums(tdy.view(), sums.data(), bench.context()));
  std::vector<Expectation> expected(kChannels);
  for (size_t i = 0; i < dy.size(); ++i) {
    expected[i % kChannels].value += dy[i];
    expected[i % kChannels].magnitude += std::abs(dy[i]);
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, CopyToHost(sums, bench.context()));
  return bench.Compare("sums", values, expected, LossOfSum(kRows), /*stored=*/false);
}

// dw = transposed(x) dy, stored in f32, and dx = dy transposed(w).
absl::Status LinearLayer(const Bench& bench) {
  constexpr int64_t kOut = 21;
  const std::vector<float> x = bench.Random(kRows * kChannels, 65);
  const std::vector<float> dy = bench.Random(kRows * kOut, 66);
  const std::vector<float> w = bench.Random(kChannels * kOut, 67);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tx, bench.Upload(x, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kOut));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tw, bench.Upload(w, kOut));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor transposed, bench.Result(kOut, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kRows, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dw,
                           Tensor::Create(kChannels, kOut, DType::kF32, bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.ops().LinearWeightGradient(tx.view(), tdy.view(), bench.precision(),
                                                           dw.view(), bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.dense().TransposeWeights(tw.view(), /*num_offsets=*/1,
                                                         /*reversed=*/false, transposed.view(),
                                                         bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.dense().Linear(tdy.view(), transposed.view(), nullptr,
                                               bench.precision(), dx.view(), bench.context()));
  std::vector<Expectation> of_w(kChannels * kOut), of_x(kRows * kChannels);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kChannels; ++i) {
      for (int64_t o = 0; o < kOut; ++o) {
        const double from_x = double{x[row * kChannels + i]} * dy[row * kOut + o];
        const double from_w = double{w[i * kOut + o]} * dy[row * kOut + o];
        of_w[i * kOut + o].value += from_x;
        of_w[i * kOut + o].magnitude += std::abs(from_x);
        of_x[row * kChannels + i].value += from_w;
        of_x[row * kChannels + i].magnitude += std::abs(from_w);
      }
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values_w, dw.ToHost(bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values_x, dx.ToHost(bench.context()));
  // Tensor cores cut bits off, twice what rounding loses.
  VOXCONV_RETURN_IF_ERROR(
      bench.Compare("dw", values_w, of_w, 2 * LossOfSum(kRows), /*stored=*/false));
  return bench.Compare("dx", values_x, of_x, 2 * LossOfSum(kOut));
}

absl::Status MaxUnpooling(const Bench& bench) {
  constexpr int64_t kOutputs = 300;
  const std::vector<float> dy = bench.Random(kRows * kChannels, 68);
  std::vector<int32_t> switches(kOutputs * kChannels);
  std::vector<Expectation> expected(switches.size());
  for (size_t i = 0; i < switches.size(); ++i) {
    switches[i] = i % 7 == 0 ? -1 : static_cast<int32_t>(i * 31 % kRows);
    if (switches[i] >= 0) {
      const auto c = static_cast<int64_t>(i % kChannels);
      expected[i].value = dy[switches[i] * kChannels + c];
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kOutputs, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> taken,
                           CopyToBackend<int32_t>(switches, bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.ops().Select(tdy.view(), taken.data(), dx.view(), bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
  return bench.Compare("dx", values, expected, 0);
}

// The gradients of pooling and unpooling: each is the other, over the same map.
absl::Status Pooling(const Bench& bench, PoolMode mode, bool unpools, const Problem& problem) {
  const auto inputs = static_cast<int64_t>(problem.inputs.size());
  const auto outputs = static_cast<int64_t>(problem.outputs.size());
  const reference::PoolShape shape{inputs, outputs, kChannels};
  const int64_t rows = unpools ? inputs : outputs, result_rows = unpools ? outputs : inputs;
  const std::vector<float> x = bench.Random(inputs * kChannels, 78);
  const std::vector<float> dy = bench.Random(rows * kChannels, 79);
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, UploadReferenceMap(problem, bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tx, bench.Upload(x, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, bench.Result(outputs, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(result_rows, kChannels));
  Array<int32_t> switches;
  if (mode == PoolMode::kMax) {
    VOXCONV_ASSIGN_OR_RETURN(switches,
                             AllocateArray<int32_t>(outputs * kChannels, bench.context()));
    VOXCONV_RETURN_IF_ERROR(
        bench.dense().Pool(map, mode, tx.view(), y.view(), switches.data(), bench.context()));
  }
  VOXCONV_RETURN_IF_ERROR(
      unpools ? bench.dense().Pool(map, mode, tdy.view(), dx.view(), nullptr, bench.context())
              : bench.dense().Unpool(map, mode, tdy.view(), switches.data(), dx.view(),
                                     bench.context()));
  const auto exact = [&](const std::vector<float>& values) {
    if (mode == PoolMode::kMax) {
      return reference::MaxUnpool(reference::MaxPool(problem.map, shape, x).switches, shape,
                                  values);
    }
    const reference::Divisor divisor = mode == PoolMode::kSum ? reference::Divisor::kOne
                                       : mode == PoolMode::kAverage
                                           ? reference::Divisor::kKernelVolume
                                           : reference::Divisor::kPresent;
    return unpools ? reference::SumPool(problem.map, shape, values, divisor)
                   : reference::SumUnpool(problem.map, shape, values, divisor);
  };
  std::vector<float> positive = dy;
  for (float& v : positive) v = std::abs(v);
  const std::vector<double> sums = exact(dy), magnitudes = exact(positive);
  std::vector<Expectation> expected(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) expected[i] = {sums[i], magnitudes[i]};
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
  return bench.Compare("dx", values, expected, LossOfSum(problem.map.num_offsets));
}

absl::Status Dropout(const Bench& bench) {
  constexpr double kRate = 0.3;
  constexpr uint64_t kSeed = 0x123456789abcdef;
  const std::vector<float> dy = bench.Random(kRows * kChannels, 69);
  std::vector<Expectation> expected(dy.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!DropoutKeeps(kSeed, i, DropoutKeptBelow(kRate))) continue;
    expected[i] = {dy[i] / (1 - kRate), std::abs(dy[i] / (1 - kRate))};
  }
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(
      const Array<uint64_t> seed,
      CopyToBackend<uint64_t>(absl::MakeConstSpan(&kSeed, 1), bench.context()));
  for (const DropoutKey& key : {DropoutKey(kSeed), DropoutKey(0, seed.data())}) {
    VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kRows, kChannels));
    VOXCONV_RETURN_IF_ERROR(
        bench.ops().Dropout(tdy.view(), kRate, key, dx.view(), bench.context()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
    VOXCONV_RETURN_IF_ERROR(bench.Compare("dx", values, expected, 0x1p-23));
  }
  return absl::OkStatus();
}

absl::Status GlobalPooling(const Bench& bench, PoolMode mode) {
  constexpr int64_t kSamples = 3;
  std::vector<Coordinate> rows(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    rows[i] = {static_cast<int32_t>(i * kSamples / kRows), static_cast<int32_t>(i), 0, 0};
  }
  const std::vector<float> x = bench.Random(kRows * kChannels, 70);
  const std::vector<float> dy = bench.Random(kSamples * kChannels, 71);
  std::vector<double> count(kSamples, 0);
  std::vector<int64_t> best(kSamples * kChannels, -1);
  for (int64_t i = 0; i < kRows * kChannels; ++i) {
    const int64_t sample = rows[i / kChannels].b, at = sample * kChannels + i % kChannels;
    if (i % kChannels == 0) ++count[sample];
    if (best[at] < 0 || x[i] > x[best[at]]) best[at] = i;
  }
  std::vector<Expectation> expected(kRows * kChannels);
  for (int64_t i = 0; i < kRows * kChannels; ++i) {
    const int64_t sample = rows[i / kChannels].b, at = sample * kChannels + i % kChannels;
    const double share = mode == PoolMode::kAveragePresent ? dy[at] / count[sample] : dy[at];
    const bool takes = mode != PoolMode::kMax || best[at] == i;
    if (takes) expected[i] = {share, std::abs(share)};
  }
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr set,
                           CoordinateSet::Create(rows, {1, 1, 1}, bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tx, bench.Upload(x, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, bench.Result(kSamples, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kRows, kChannels));
  VOXCONV_RETURN_IF_ERROR(
      bench.dense().GlobalPool(*set, mode, tx.view(), y.view(), bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.ops().GlobalPoolGrad(set->rows(), mode, tx.view(), y.view(),
                                                     tdy.view(), dx.view(), bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
  return bench.Compare("dx", values, expected, 0x1p-23);
}

// The moments and gradients of a batch norm in fp64.
struct ExactNorm {
  std::vector<Expectation> sum_dy, sum_dy_x, dx;
};
ExactNorm ComputeNorm(const std::vector<float>& x, const std::vector<float>& dy,
                      const std::vector<float>& gamma, double epsilon) {
  ExactNorm exact{std::vector<Expectation>(kChannels), std::vector<Expectation>(kChannels),
                  std::vector<Expectation>(x.size())};
  for (int64_t c = 0; c < kChannels; ++c) {
    double mean = 0, deviation = 0;
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) mean += x[i] / double{kRows};
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) deviation += Square(x[i] - mean);
    const double inverse_std = 1 / std::sqrt(deviation / kRows + epsilon);
    Expectation &sum = exact.sum_dy[c], &product = exact.sum_dy_x[c];
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) {
      const double scaled = dy[i] * (x[i] - mean) * inverse_std;
      sum.value += dy[i];
      sum.magnitude += std::abs(dy[i]);
      product.value += scaled;
      product.magnitude += std::abs(scaled);
    }
    for (int64_t i = c; i < kRows * kChannels; i += kChannels) {
      const double terms[] = {dy[i], -sum.value / kRows,
                              -(x[i] - mean) * inverse_std * product.value / kRows};
      for (const double term : terms) {
        exact.dx[i].value += gamma[c] * inverse_std * term;
        exact.dx[i].magnitude += std::abs(gamma[c] * inverse_std * term);
      }
    }
  }
  return exact;
}

absl::Status BatchNorm(const Bench& bench, bool relu) {
  const std::vector<float> x = bench.Random(kRows * kChannels, 72);
  std::vector<float> dy = bench.Random(kRows * kChannels, 73), y = x;
  const std::vector<float> gamma = Values(kChannels, 74);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tx, bench.Upload(x, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor tdy, bench.Upload(dy, kChannels));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor ty, bench.Upload(y, kChannels));  // any mask serves
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, bench.Result(kRows, kChannels));
  std::vector<Array<float>> arrays(8);  // mean, deviation, gamma, beta, ..., sums
  for (Array<float>& array : arrays) {
    VOXCONV_ASSIGN_OR_RETURN(array, bench.Vector(gamma));
  }
  const BatchNormBatch batch{.channels = kChannels,
                             .rows = kRows,
                             .mean = arrays[0].data(),
                             .deviation = arrays[1].data(),
                             .gamma = arrays[2].data(),
                             .beta = arrays[2].data(),
                             .inverse_std = arrays[3].data(),
                             .scale = arrays[4].data(),
                             .shift = arrays[5].data()};
  const BatchNormGradArgs args{.x = tx.view(),
                               .dy = tdy.view(),
                               .y = relu ? ConstTensorView(ty.view()) : ConstTensorView{},
                               .mean = arrays[0].data(),
                               .inverse_std = arrays[3].data(),
                               .gamma = arrays[2].data(),
                               .sum_dy = arrays[6].data(),
                               .sum_dy_x = arrays[7].data(),
                               .rows = kRows};
  TrainingOps& ops = bench.ops();
  VOXCONV_RETURN_IF_ERROR(
      ops.ChannelMoments(tx.view(), arrays[0].data(), arrays[1].data(), bench.context()));
  VOXCONV_RETURN_IF_ERROR(ops.BatchNormScale(batch, bench.context()));
  VOXCONV_RETURN_IF_ERROR(ops.BatchNormGradSums(args, bench.context()));
  VOXCONV_RETURN_IF_ERROR(ops.BatchNormInputGrad(args, dx.view(), bench.context()));
  for (size_t i = 0; relu && i < dy.size(); ++i) dy[i] = y[i] > 0 ? dy[i] : 0;
  const ExactNorm exact = ComputeNorm(x, dy, gamma, batch.epsilon);
  // The moments are rounded to f32 too.
  const double loss = LossOfSum(kRows) + 16 * 0x1p-24;
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> sum, CopyToHost(arrays[6], bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> product,
                           CopyToHost(arrays[7], bench.context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, dx.ToHost(bench.context()));
  VOXCONV_RETURN_IF_ERROR(bench.Compare("sum_dy", sum, exact.sum_dy, loss, false));
  VOXCONV_RETURN_IF_ERROR(bench.Compare("sum_dy_x", product, exact.sum_dy_x, loss, false));
  return bench.Compare("dx", values, exact.dx, loss);
}

enum class Loss { kCrossEntropy, kSmoothed, kWeightedSmoothed, kLovasz };

absl::Status LossGradient(const Bench& bench, Loss kind) {
  constexpr int64_t kClasses = 13;
  const int64_t rows = kind == Loss::kLovasz ? 300 : kRows;  // the oracle takes O(rows^2)
  std::vector<float> logits = Values(rows * kClasses, 75);
  for (float& v : logits) v *= 4;
  logits = RoundedTo(bench.precision(), logits);
  std::vector<int32_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) {
    labels[i] = i % 9 == 0 ? -1 : static_cast<int32_t>(i * i % kClasses);
  }
  ReferenceLoss reference;
  std::vector<float> weights;
  if (kind == Loss::kSmoothed || kind == Loss::kWeightedSmoothed) reference.smoothing = 0.1;
  if (kind == Loss::kWeightedSmoothed) {
    for (int64_t c = 0; c < kClasses; ++c) weights.push_back(0.5f + static_cast<float>(c % 4));
    reference.class_weights.assign(weights.begin(), weights.end());
  }
  reference.lovasz = kind == Loss::kLovasz;
  reference.cross_entropy = !reference.lovasz;
  const ReferenceLossResult exact = ComputeReferenceLoss(
      std::vector<double>(logits.begin(), logits.end()), kClasses, labels, reference);

  const ExecutionContext& context = bench.context();
  VOXCONV_ASSIGN_OR_RETURN(const Tensor x, bench.Upload(logits, kClasses));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor gradient, bench.Result(rows, kClasses));
  VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> of_rows, CopyToBackend<int32_t>(labels, context));
  VOXCONV_ASSIGN_OR_RETURN(const Array<float> of_classes, bench.Vector(weights));
  VOXCONV_ASSIGN_OR_RETURN(const Array<float> scale, bench.Vector({kGradientScale}));
  VOXCONV_ASSIGN_OR_RETURN(Array<LossResult> result, AllocateArray<LossResult>(1, context));
  if (kind == Loss::kLovasz) {
    VOXCONV_RETURN_IF_ERROR(bench.ops().LovaszSoftmax(
        {.logits = x.view(), .labels = of_rows.data(), .gradient_scale = scale.data()},
        gradient.view(), result.data(), context));
  } else {
    VOXCONV_RETURN_IF_ERROR(
        bench.ops().CrossEntropy({.logits = x.view(),
                                  .labels = of_rows.data(),
                                  .class_weights = weights.empty() ? nullptr : of_classes.data(),
                                  .smoothing = reference.smoothing,
                                  .gradient_scale = scale.data()},
                                 gradient.view(), result.data(), context));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<LossResult> results, CopyToHost(result, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, gradient.ToHost(context));
  if (!(std::abs(results[0].loss - exact.loss) <= 2e-6 * exact.loss)) {
    return absl::InternalError(absl::StrCat("loss: ", results[0].loss, "; expected ", exact.loss));
  }
  std::vector<double> scaled = exact.gradient;
  for (double& g : scaled) g *= kGradientScale;
  if (kind == Loss::kLovasz) {  // equal errors may be sorted either way; see the loss's unit test
    const double error = reference::RelativeError(values, scaled);
    if (error <= (bench.precision() == Precision::kBF16 ? 4e-3 : 1e-3)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("gradient: norm-wise error ", error));
  }
  std::vector<Expectation> expected(scaled.size());
  for (size_t i = 0; i < scaled.size(); ++i) {
    // A share of the row's weight, which is at most 3.5 of a mean.
    expected[i] = {scaled[i], 3.5 * kGradientScale / static_cast<double>(rows)};
  }
  return bench.Compare("gradient", values, expected, 0x1p-18);
}

struct NamedOperator {
  std::string name;
  std::function<absl::Status(const Bench&)> check;
};

std::vector<NamedOperator> PoolingOperators(const Problem& problem) {
  std::vector<NamedOperator> operators;
  for (const PoolMode mode :
       {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    for (const bool unpools : {false, true}) {
      if (unpools && mode == PoolMode::kMax) continue;  // max_unpooling is Select
      operators.push_back({absl::StrCat(ToString(mode), unpools ? "_unpooling" : "_pooling"),
                           [mode, unpools, &problem](const Bench& b) {
                             return Pooling(b, mode, unpools, problem);
                           }});
    }
  }
  return operators;
}

std::vector<NamedOperator> Operators() {
  return {
      {"relu", Relu},
      {"batch_norm", [](const Bench& b) { return BatchNorm(b, false); }},
      {"batch_norm_relu", [](const Bench& b) { return BatchNorm(b, true); }},
      {"add", Add},
      {"concat", Concat},
      {"bias", Bias},
      {"linear", LinearLayer},
      {"max_unpooling", MaxUnpooling},
      {"dropout", Dropout},
      {"global_max", [](const Bench& b) { return GlobalPooling(b, PoolMode::kMax); }},
      {"global_sum", [](const Bench& b) { return GlobalPooling(b, PoolMode::kSum); }},
      {"global_average",
       [](const Bench& b) { return GlobalPooling(b, PoolMode::kAveragePresent); }},
      {"cross_entropy", [](const Bench& b) { return LossGradient(b, Loss::kCrossEntropy); }},
      {"cross_entropy_label_smoothing",
       [](const Bench& b) { return LossGradient(b, Loss::kSmoothed); }},
      {"cross_entropy_weighted",
       [](const Bench& b) { return LossGradient(b, Loss::kWeightedSmoothed); }},
      {"lovasz", [](const Bench& b) { return LossGradient(b, Loss::kLovasz); }},
  };
}

}  // namespace

void AddGradOperatorCases(Environment& environment, std::vector<Case>& cases) {
  if (environment.backend->training_ops() == nullptr) return;
  std::vector<Precision> precisions = {Precision::kF32};
  if (environment.backend->device().space == MemorySpace::kDevice) {
    precisions.insert(precisions.end(), {Precision::kTf32, Precision::kF16, Precision::kBF16});
  }
  // Windows that overlap, and voxels that are in none.
  const Problem& windows =
      *environment.problems.Get(GeometryNamed("dilate_k3_s2_bounded"), Scenes()[1]);
  std::vector<NamedOperator> operators = Operators();
  for (NamedOperator& op : PoolingOperators(windows)) operators.push_back(std::move(op));
  for (const NamedOperator& op : operators) {
    for (const Precision precision : precisions) {
      cases.push_back({absl::StrCat("grad/op/", op.name, "/", ToString(precision)),
                       [&environment, op, precision] {
                         const Bench bench(ContextOf(*environment.backend), precision);
                         return Outcome::From(op.check(bench));
                       }});
    }
  }
}

}  // namespace voxconv::verify
