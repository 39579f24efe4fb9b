// SPDX-License-Identifier: Apache-2.0
// What every dataflow promises of weights that it prepares, on any backend.
#ifndef VOXCONV_TESTS_UNIT_PREPARED_WEIGHTS_CASES_H_
#define VOXCONV_TESTS_UNIT_PREPARED_WEIGHTS_CASES_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataflow_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/core/convolution.h"

namespace voxconv {

inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Runs with weights as they are, with prepared ones, and with prepared ones beside weights of other
// values. All give the same bits where the plan reads what was prepared. Returns whether it does.
inline bool PreparedWeightsGiveTheSameBits(const Dataflow& dataflow, const ConvProblem& problem,
                                           Precision precision, const ExecutionContext& context) {
  const ConvShape shape = problem.ShapeIn(precision);
  const auto upload = [&](const std::vector<float>& values, int64_t rows, int64_t channels) {
    return *Tensor::FromHost(values, rows, channels, context, shape.types.input);
  };
  const int64_t weight_rows = shape.num_offsets * shape.c_in;
  const Tensor input = upload(problem.features, problem.map.num_inputs, shape.c_in);
  const std::vector<float> ones(problem.weights.size(), 1);
  const Tensor weights = upload(problem.weights, weight_rows, shape.c_out);
  const Tensor others = upload(ones, weight_rows, shape.c_out);
  const KernelMap pairs = ToKernelMap(problem.map, context);
  const auto map = *PrepareMap(dataflow, Pass::kForward, shape, pairs, context);
  const auto plan = *dataflow.Plan(Pass::kForward, *map, shape, context);
  const auto prepared = *dataflow.PrepareWeights(shape, weights.view(), context);
  const bool reads = prepared != nullptr && prepared->layout() == plan->weights_layout();
  Workspace workspace;
  const auto run = [&](const Tensor& from, const PreparedWeights* with) {
    const auto output =
        RunPlannedConvolution(dataflow, *plan, *map, input.view(), from.view(), workspace, context,
                              /*epilogue=*/{}, /*settled=*/false, with);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? BitsOf(*output->ToHost(context)) : std::vector<uint32_t>();
  };
  const std::vector<uint32_t> expected = run(weights, nullptr);
  EXPECT_EQ(run(weights, prepared.get()), expected);
  EXPECT_EQ(run(others, prepared.get()), reads ? expected : run(others, nullptr));
  return reads;
}

// Weights that were prepared for another shape are refused.
inline void ExpectOtherShapesAreRefused(const Dataflow& dataflow, const ConvProblem& problem,
                                        Precision precision, const ExecutionContext& context) {
  const ConvShape shape = problem.ShapeIn(precision);
  ConvShape other = shape;
  other.c_in *= 2;
  const auto tensor = [&](int64_t rows, int64_t channels) {
    return *Tensor::FromHost(std::vector<float>(rows * channels, 1), rows, channels, context,
                             shape.types.input);
  };
  const Tensor of_other = tensor(other.num_offsets * other.c_in, other.c_out);
  const Tensor weights = tensor(shape.num_offsets * shape.c_in, shape.c_out);
  const Tensor input = tensor(problem.map.num_inputs, shape.c_in);
  const auto refused = dataflow.PrepareWeights(shape, of_other.view(), context);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  const auto prepared = *dataflow.PrepareWeights(other, of_other.view(), context);
  ASSERT_NE(prepared, nullptr);
  EXPECT_EQ(prepared->shape(), other);
  EXPECT_GE(prepared->bytes(), of_other.view().bytes());
  const auto map =
      *PrepareMap(dataflow, Pass::kForward, shape, ToKernelMap(problem.map, context), context);
  const auto plan = *dataflow.Plan(Pass::kForward, *map, shape, context);
  Workspace workspace;
  const auto output =
      RunPlannedConvolution(dataflow, *plan, *map, input.view(), weights.view(), workspace, context,
                            /*epilogue=*/{}, /*settled=*/false, prepared.get());
  EXPECT_EQ(output.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(output.status().message()), testing::HasSubstr("prepared_weights"));
}

// A layer without offsets has no weights to prepare, and one without channels is none.
inline void ExpectNothingIsPreparedOfNoWeights(const Dataflow& dataflow, Precision precision,
                                               const ExecutionContext& context) {
  ConvShape shape{.c_in = 16, .c_out = 20, .num_offsets = 0, .types = ConvTypes::Of(precision)};
  if (!dataflow.Supports(Pass::kForward, shape).ok) return;
  const Tensor none = *Tensor::Create(0, shape.c_out, shape.types.weights, context);
  const auto prepared = dataflow.PrepareWeights(shape, none.view(), context);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(*prepared, nullptr);
  shape.num_offsets = 27;
  shape.c_in = 0;
  EXPECT_EQ(dataflow.PrepareWeights(shape, none.view(), context).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_PREPARED_WEIGHTS_CASES_H_
