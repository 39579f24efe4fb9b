// SPDX-License-Identifier: Apache-2.0
#include "tests/saboteurs/faults.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/base/config.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/half.h"

namespace voxconv::testing {
namespace {

// What is "large" to the faults that show on large problems alone.
constexpr int64_t kLarge = 60000;
constexpr int kOnceIn = 100;

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

using Values = std::vector<float>;

bool RunsOnThreads(const ExecutionContext& context, int threads) {
  return context.backend->kind() == BackendKind::kCpu && AsCpu(context).threads() == threads;
}

// A copy of `view` with its values changed.
absl::StatusOr<Tensor> Changed(const ConstTensorView& view,
                               const std::function<void(Values&)>& change,
                               const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Values values, ToHost(view, context));
  change(values);
  return Tensor::FromHost(values, view.rows, view.channels, context, view.dtype);
}

// Frees nothing that queued work still reads.
absl::Status RunAndWait(const ConvCall& call) {
  VOXCONV_RETURN_IF_ERROR(call.RunRight());
  return call.context.stream->Synchronize();
}

// Faults in the arguments.

DataflowFault WithInput(std::function<void(const ConvCall&, Values&)> change) {
  return [change = std::move(change)](ConvCall call) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor input,
        Changed(
            call.input, [&](Values& values) { change(call, values); }, call.context));
    call.input = input.view();
    return RunAndWait(call);
  };
}

DataflowFault WithWeights(std::function<void(const ConvCall&, Values&)> change) {
  return [change = std::move(change)](ConvCall call) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor weights,
        Changed(
            call.weights, [&](Values& values) { change(call, values); }, call.context));
    call.weights = weights.view();
    return RunAndWait(call);
  };
}

DataflowFault WithPairs(std::function<void(Pairs&)> change) {
  return [change = std::move(change)](ConvCall call) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap right, call.map->ToPairs(call.context));
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap changed,
                             testing::Changed(right, change, /*keep_marks=*/false, call.context));
    call.other_map = &changed;
    return RunAndWait(call);
  };
}

// Faults in the result. `before` is what the output held.
DataflowFault WithOutput(
    std::function<void(const ConvCall&, const Values& before, Values& output)> change) {
  return [change = std::move(change)](const ConvCall& call) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(const Values before, ToHost(call.output, call.context));
    VOXCONV_RETURN_IF_ERROR(call.RunRight());
    VOXCONV_ASSIGN_OR_RETURN(Values output, ToHost(call.output, call.context));
    if (output.empty()) return absl::OkStatus();
    change(call, before, output);
    return Overwrite(call.output, output, call.context);
  };
}

// The first output is wrong by one where `applies`.
DataflowFault WrongWhere(std::function<bool(const ConvCall&)> applies) {
  return WithOutput(
      [applies = std::move(applies)](const ConvCall& call, const Values&, Values& output) {
        if (applies(call)) output[0] += 1;
      });
}

void LoseChannel(const ConvCall& call, Values& weights) {
  const int64_t c_in = call.input.channels, c_out = call.output.channels;
  const int64_t row = call.num_offsets() / 3 * c_in + c_in / 2;
  std::fill_n(weights.begin() + row * c_out, c_out, 0.0f);
}

// A small part of the sum: norm-wise bounds of bf16 have let it pass.
void LoseChannelOfMany(const ConvCall& call, Values& weights) {
  if (call.input.channels >= 200) LoseChannel(call, weights);
}

// Offset k gets the weights of offset K-1-k: those of the negated offset, for odd kernels.
void NegateOffsets(const ConvCall& call, Values& weights) {
  const int64_t matrix = call.input.channels * call.output.channels;
  Values negated;
  for (int k = call.num_offsets() - 1; k >= 0; --k) {
    negated.insert(negated.end(), weights.begin() + k * matrix, weights.begin() + (k + 1) * matrix);
  }
  weights = std::move(negated);
}

void ExchangeTwoOffsets(const ConvCall& call, Values& weights) {
  if (call.num_offsets() < 3) return;
  const int64_t matrix = call.input.channels * call.output.channels;
  std::swap_ranges(weights.begin() + matrix, weights.begin() + 2 * matrix,
                   weights.begin() + 2 * matrix);
}

void SkipLastOffset(const ConvCall& call, Values& weights) {
  if (call.input.rows < kLarge) return;
  std::fill_n(weights.end() - call.input.channels * call.output.channels,
              call.input.channels * call.output.channels, 0.0f);
}

absl::Status RoundToBf16(ConvCall call) {
  const auto round = [](Values& values) {
    for (float& value : values) value = Bf16BitsToFloat(FloatToBf16Bits(value));
  };
  VOXCONV_ASSIGN_OR_RETURN(const Tensor input, Changed(call.input, round, call.context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor weights, Changed(call.weights, round, call.context));
  call.input = input.view();
  call.weights = weights.view();
  return RunAndWait(call);
}

DataflowFault ClampsInputPast(float most) {
  return WithInput([most](const ConvCall&, Values& values) {
    for (float& value : values) {
      if (!std::isnan(value)) value = std::clamp(value, -most, most);
    }
  });
}

void FlushDenormals(const ConvCall& call, Values& values) {
  const float least = call.input.dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
  for (float& value : values) {
    if (std::abs(value) < least) value = 0;
  }
}

void LeaveLastRow(const ConvCall& call, const Values& before, Values& output) {
  std::copy(before.end() - call.output.channels, before.end(), output.end() - call.output.channels);
}

void ExchangeRows(const ConvCall& call, const Values&, Values& output) {
  std::swap_ranges(output.begin(), output.begin() + call.output.channels,
                   output.end() - call.output.channels);
}

void ZeroLastRows(const ConvCall& call, const Values&, Values& output) {
  if (call.input.rows >= kLarge) {
    std::fill_n(output.end() - 16 * call.output.channels, 16 * call.output.channels, 0.0f);
  }
}

// What a sum that starts at what is there would do, where that is a number.
void AddToStaleOutput(const ConvCall&, const Values& before, Values& output) {
  for (size_t i = 0; i < output.size(); ++i) {
    if (std::isfinite(before[i])) output[i] += before[i];
  }
}

void SpreadNan(const ConvCall& call, const Values&, Values& output) {
  const int64_t channels = call.output.channels;
  for (int64_t row = call.output.rows - 1; row > 0; --row) {
    const float above = output[(row - 1) * channels];
    if (std::isnan(above)) output[row * channels] = above;
  }
}

absl::Status ReadStaleWorkspace(const ConvCall& call) {
  float stale = 0;
  Backend& backend = *call.context.backend;
  VOXCONV_RETURN_IF_ERROR(backend.Copy(&stale, MemorySpace::kHost, call.stale,
                                       backend.device().space, sizeof(stale),
                                       *call.context.stream));
  VOXCONV_RETURN_IF_ERROR(call.RunRight());
  VOXCONV_ASSIGN_OR_RETURN(Values output, ToHost(call.output, call.context));
  if (output.empty() || !std::isfinite(stale)) return absl::OkStatus();
  output[0] += stale;
  return Overwrite(call.output, output, call.context);
}

// Another order of a sum, now and then: the last bit of one output changes. Whole numbers have no
// such bit.
DataflowFault ChangeOneBitSometimes() {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  return WithOutput([calls](const ConvCall& call, const Values&, Values& output) {
    if (++*calls % kOnceIn != 0) return;
    const auto first = std::find_if(output.begin(), output.end(),
                                    [](float y) { return std::isfinite(y) && y != std::rint(y); });
    if (first == output.end()) return;
    const bool is_f16 = call.output.dtype == DType::kF16;
    const bool is_bf16 = call.output.dtype == DType::kBF16;
    *first *= 1 + (is_f16 ? 0x1p-10f : is_bf16 ? 0x1p-7f : 0x1p-23f);
  });
}

// Writes to what may only be read.
absl::Status WriteTo(const ConstTensorView& view, const ConvCall& call) {
  VOXCONV_RETURN_IF_ERROR(call.RunRight());
  if (view.bytes() == 0) return absl::OkStatus();
  return call.context.backend->FillBytes(const_cast<void*>(view.data), 0, SizeOf(view.dtype) * 2,
                                         *call.context.stream);
}

// A sum over a padded row: what lies behind the input shows if it is not a number.
absl::Status ReadPastInput(const ConvCall& call) {
  uint32_t past = 0;
  Backend& backend = *call.context.backend;
  VOXCONV_RETURN_IF_ERROR(backend.Copy(
      &past, MemorySpace::kHost, static_cast<const char*>(call.input.data) + call.input.bytes(),
      call.input.device.space, SizeOf(call.input.dtype), *call.context.stream));
  VOXCONV_RETURN_IF_ERROR(RunAndWait(call));
  const bool is_nan = call.input.dtype == DType::kF32
                          ? std::isnan(std::bit_cast<float>(past))
                          : std::isnan(HalfBitsToFloat(static_cast<uint16_t>(past)));
  if (!is_nan || call.output.rows == 0) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(Values output, ToHost(call.output, call.context));
  output.back() = std::nanf("");
  return Overwrite(call.output, output, call.context);
}

absl::Status ReportFalseCounters(const ConvCall& call) {
  VOXCONV_RETURN_IF_ERROR(call.RunRight());
  if (Counters* counters = call.context.counters()) {
    counters->true_pairs += counters->true_pairs / 100 + 1;
  }
  return absl::OkStatus();
}

std::vector<int> Offsets(const Pairs& pairs) {
  std::vector<int> order(pairs.num_offsets());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void NegateOffsets(const MapCall&, Pairs& pairs) {
  std::vector<int> order = Offsets(pairs);
  std::reverse(order.begin(), order.end());
  pairs.ReorderOffsets(order);
}

void ExchangeTwoOffsets(const MapCall&, Pairs& pairs) {
  std::vector<int> order = Offsets(pairs);
  if (order.size() > 2) std::swap(order[1], order[2]);
  pairs.ReorderOffsets(order);
}

void ExchangeInputRows(const MapCall&, Pairs& pairs) {
  for (int32_t& p : pairs.in) {
    p = p == 0 ? static_cast<int32_t>(pairs.num_inputs) - 1 : p == pairs.num_inputs - 1 ? 0 : p;
  }
}

void LeaveTheRange(const MapCall&, Pairs& pairs) {
  if (pairs.num_inputs >= kLarge) pairs.in.back() = static_cast<int32_t>(pairs.num_inputs);
}

// The last pair is missing where `applies`.
MappingFault LosesOneWhere(std::function<bool(const MapCall&, const Pairs&)> applies) {
  return [applies = std::move(applies)](const MapCall& call, Pairs& pairs) {
    if (applies(call, pairs)) pairs.DropLast();
  };
}

MappingFault LosesOneIn(int64_t period) {
  return [period](const MapCall&, Pairs& pairs) { pairs.DropEvery(period); };
}

}  // namespace

std::vector<NamedFault<DataflowFault>> DataflowFaults() {
  using enum Precision;
  const std::vector<Precision> all = {kF32, kTf32, kF16, kBF16};
  const std::vector<Precision> finer_than_bf16 = {kF32, kTf32, kF16};
  const std::vector<Precision> past_f16 = {kF32, kTf32, kBF16};
  const auto loses_one_in = [](int64_t period) {
    return WithPairs([period](Pairs& pairs) { pairs.DropEvery(period); });
  };
  const auto is_48 = [](const ConvCall& call) {
    return call.input.channels == 48 || call.output.channels == 48;
  };
  std::vector<NamedFault<DataflowFault>> faults = {
      {"channel_lost_at_one_offset", WithWeights(LoseChannel), all},
      {"channel_lost_of_200_or_more", WithWeights(LoseChannelOfMany), all},
      {"last_row_not_written", WithOutput(LeaveLastRow), all},
      {"one_pair_in_1e4_lost", loses_one_in(10000), all},
      {"offset_sign_swapped",
       WithWeights([](const ConvCall& c, Values& w) { NegateOffsets(c, w); }), all},
      {"two_offsets_exchanged",
       WithWeights([](const ConvCall& c, Values& w) { ExchangeTwoOffsets(c, w); }), all},
      {"operands_rounded_to_bf16", RoundToBf16, finer_than_bf16},
      {"stale_workspace_read", ReadStaleWorkspace, all},
      {"stale_output_read", WithOutput(AddToStaleOutput), all},
      {"output_rows_permuted", WithOutput(ExchangeRows), all},
      {.name = "one_run_in_100_differs",
       .fault = ChangeOneBitSometimes(),
       .precisions = all,
       .breaks_determinism = true},
      {"last_offset_skipped_if_large", WithWeights(SkipLastOffset), all},
      {"last_rows_zero_if_large", WithOutput(ZeroLastRows), all},
      {"one_pair_in_1e5_lost", loses_one_in(100000), all},
      {"one_pair_in_1e6_lost", loses_one_in(1000000), all},
      {"wrong_for_48_channels", WrongWhere(is_48), all},
      {"wrong_for_343_offsets",
       WrongWhere([](const ConvCall& call) { return call.num_offsets() == 343; }), all},
      {.name = "wrong_on_4_threads",
       .fault = WrongWhere([](const ConvCall& call) { return RunsOnThreads(call.context, 4); }),
       .precisions = all,
       .cpu_only = true},
      {"clamps_past_65504", ClampsInputPast(65504), past_f16},
      {"clamps_past_1e30", ClampsInputPast(1e30f), past_f16},
      {"flushes_denormals", WithInput(FlushDenormals), all},
      {"nan_spreads", WithOutput(SpreadNan), all},
      {"writes_into_its_input", [](const ConvCall& call) { return WriteTo(call.input, call); },
       all},
      {"writes_into_its_weights", [](const ConvCall& call) { return WriteTo(call.weights, call); },
       all},
      {"reports_false_counters", ReportFalseCounters, all},
  };
  // A sanitizer finds this one by itself.
  if (!kHasSanitizer) faults.push_back({"reads_past_its_input", ReadPastInput, all});
  return faults;
}

std::vector<NamedFault<MappingFault>> MappingFaults() {
  const std::vector<Precision> maps = {Precision::kF32};
  const auto calls = std::make_shared<std::atomic<int>>(0);
  return {
      {"one_pair_in_1e4_lost", LosesOneIn(10000), maps},
      {"one_pair_in_1e5_lost", LosesOneIn(100000), maps},
      {"one_pair_in_1e6_lost", LosesOneIn(1000000), maps},
      {"offset_sign_swapped", [](const MapCall& call, Pairs& pairs) { NegateOffsets(call, pairs); },
       maps},
      {"two_offsets_exchanged",
       [](const MapCall& call, Pairs& pairs) { ExchangeTwoOffsets(call, pairs); }, maps},
      {"input_rows_permuted", ExchangeInputRows, maps},
      {"out_of_range_if_large", LeaveTheRange, maps},
      {"one_query_in_100_differs",
       LosesOneWhere([calls](const MapCall&, const Pairs&) { return ++*calls % kOnceIn == 0; }),
       maps},
      {"wrong_for_343_offsets",
       LosesOneWhere([](const MapCall&, const Pairs& pairs) { return pairs.num_offsets() == 343; }),
       maps},
      {"wrong_for_6_or_8_samples", LosesOneWhere([](const MapCall& call, const Pairs&) {
         return call.num_batches == 6 || call.num_batches == 8;
       }),
       maps},
      {.name = "wrong_on_4_threads",
       .fault = LosesOneWhere(
           [](const MapCall& call, const Pairs&) { return RunsOnThreads(call.context, 4); }),
       .precisions = maps,
       .cpu_only = true},
  };
}

}  // namespace voxconv::testing
