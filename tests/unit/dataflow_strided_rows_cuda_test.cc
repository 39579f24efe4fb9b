// SPDX-License-Identifier: Apache-2.0
// Convolutions on parts of wider matrices (Capability::strides_rows) on CUDA: the same bits as on
// contiguous rows, and nothing is written between the rows of the output.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

// Elements before and behind the channels of a row.
struct Gaps {
  int64_t before, behind;
};

struct Strided {
  std::vector<float> values;  // the output
  int64_t changed = 0;        // elements beside it that were written
};

constexpr float kGuard = -1536.0f;  // the same in every dtype

// The features lie in a matrix whose other elements are NaN, and the residual is the scaled output
// of another matrix, so that its rows have no gaps.
absl::StatusOr<Strided> RunStrided(const Dataflow& dataflow, const ConvProblem& problem,
                                   Precision precision, const Gaps& in, const Gaps& out,
                                   const ExecutionContext& context) {
  const ConvShape shape = problem.ShapeIn(precision);
  const DType dtype = shape.types.input;
  const int64_t rows_in = problem.map.num_inputs, rows_out = problem.map.num_outputs;
  const int64_t stride_in = in.before + problem.c_in + in.behind;
  const int64_t stride_out = out.before + problem.c_out + out.behind;
  std::vector<float> wide(rows_in * stride_in, std::nanf(""));
  for (int64_t i = 0; i < rows_in * problem.c_in; ++i) {
    wide[i / problem.c_in * stride_in + in.before + i % problem.c_in] = problem.features[i];
  }
  const std::vector<float> guards(rows_out * stride_out, kGuard);
  std::vector<float> added(rows_out * problem.c_out);
  for (size_t i = 0; i < added.size(); ++i) added[i] = static_cast<float>(i % 7);
  VOXCONV_ASSIGN_OR_RETURN(Tensor input,
                           Tensor::FromHost(wide, rows_in, stride_in, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           Tensor::FromHost(guards, rows_out, stride_out, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor residual,
                           Tensor::FromHost(added, rows_out, problem.c_out, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor weights,
                           Tensor::FromHost(problem.weights, shape.num_offsets * problem.c_in,
                                            problem.c_out, context, dtype));
  const auto part = [](TensorView view, int64_t before, int64_t channels) {
    view.data = static_cast<char*>(view.data) + before * SizeOf(view.dtype);
    view.channels = channels;
    return view;
  };
  VOXCONV_ASSIGN_OR_RETURN(const auto map, PrepareMap(dataflow, Pass::kForward, shape,
                                                      ToKernelMap(problem.map, context), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto plan, dataflow.Plan(Pass::kForward, *map, shape, context));
  Workspace workspace;
  VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
  VOXCONV_RETURN_IF_ERROR(
      dataflow.Forward(*plan, *map,
                       {.input = part(input.view(), in.before, problem.c_in),
                        .weights = weights.view(),
                        .output = part(output.view(), out.before, problem.c_out),
                        .epilogue = {.residual = residual.view(), .relu = true}},
                       workspace, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> all, output.ToHost(context));
  Strided result;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) % stride_out - out.before;
    if (c >= 0 && c < problem.c_out) {
      result.values.push_back(all[i]);
    } else if (all[i] != kGuard) {
      ++result.changed;
    }
  }
  return result;
}

TEST(StridedRowsCudaTest, SameBitsAndNothingBetweenRows) {
  VOXCONV_NEED_CUDA(cuda);
  Registry registry;
  ASSERT_TRUE(RegisterImplicitGemm(registry).ok() && RegisterImplicitGemmCuda(registry).ok());
  // The kernels of few channels, of a block and of warpgroups; 33 channels are no whole vectors.
  const std::vector<ConvProblem> problems = {
      {DensityMap(900, 700, 27, 0.1), 32, 32},   {DensityMap(900, 700, 27, 0.1), 4, 16},
      {DensityMap(900, 700, 27, 0.1), 64, 96},   {DensityMap(900, 700, 27, 0.1), 33, 33},
      {DensityMap(6000, 5000, 27, 0.1), 64, 64}, {DensityMap(6000, 5000, 27, 0.1), 72, 256}};
  const Gaps kNone{0, 0};
  for (const char* spec : {"implicit_gemm:mask_sort=rarest", "implicit_gemm",
                           "implicit_gemm:splits=3", "implicit_gemm:mma=3xtf32"}) {
    const auto dataflow = registry.dataflows().Create(spec, BackendKind::kCuda);
    ASSERT_TRUE(dataflow.ok()) << dataflow.status();
    for (const ConvProblem& problem : problems) {
      for (const Precision precision :
           {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
        SCOPED_TRACE(
            absl::StrCat(spec, " ", ::testing::PrintToString(problem), " ", ToString(precision)));
        ASSERT_TRUE(
            (*dataflow)->CapabilityOf(Pass::kForward, problem.ShapeIn(precision)).strides_rows);
        const auto plain = RunStrided(**dataflow, problem, precision, kNone, kNone, cuda->context);
        ASSERT_TRUE(plain.ok()) << plain.status();
        for (const auto& [in, out] :
             {std::pair<Gaps, Gaps>{{64, 32}, {32, 64}}, {{0, 8}, {8, 0}}, {{3, 2}, {1, 4}}}) {
          const auto strided = RunStrided(**dataflow, problem, precision, in, out, cuda->context);
          ASSERT_TRUE(strided.ok()) << strided.status();
          EXPECT_EQ(strided->changed, 0);
          EXPECT_EQ(strided->values, plain->values);
        }
      }
    }
  }
}

}  // namespace
}  // namespace voxconv
