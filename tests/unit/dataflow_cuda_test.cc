// SPDX-License-Identifier: Apache-2.0
// What `voxconv verify --backend cuda` does not reach: kernels of more offsets than one launch
// moves, matrices at odd addresses, and work forked to side streams.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cuda/stream_fork.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

absl::StatusOr<std::vector<float>> RunAt(int64_t skipped, const std::string& spec,
                                         const ConvProblem& problem, Precision precision,
                                         const ExecutionContext& context) {
  Registry registry;
  for (const auto& add :
       {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter, RegisterHash2col,
        RegisterImplicitGemm, RegisterDirectCuda, RegisterFetchOnDemandCuda,
        RegisterGatherGemmScatterCuda, RegisterHash2colCuda, RegisterImplicitGemmCuda}) {
    VOXCONV_RETURN_IF_ERROR(add(registry));
  }
  return RunOn(context, registry, spec, problem, skipped, precision);
}

void ExpectEqualsBruteForce(int64_t skipped, const std::string& spec, const ConvProblem& problem,
                            const ExecutionContext& context) {
  const auto output = RunAt(skipped, spec, problem, Precision::kF32, context);
  ASSERT_TRUE(output.ok()) << spec << " at " << skipped << ": " << output.status();
  ExpectNear(*output, problem, absl::StrCat(spec, " at ", skipped));
}

TEST(GatherGemmScatterCudaTest, MoreOffsetsThanALaunchMoves) {
  VOXCONV_NEED_CUDA(cuda);
  std::vector<int64_t> sizes(343);
  for (size_t k = 0; k < sizes.size(); ++k) sizes[k] = static_cast<int64_t>(k * 37 % 61);
  const ConvProblem problem(RandomMap(90, 70, sizes, 5), 6, 10);
  for (const char* options :
       {"", "order=weight", "order=weight,offsets_per_launch=1", "order=tile,tile=4",
        "grouping=ragged", "map=coded_csr", "grouping=separate,streams=3",
        "map=coded_csr,offsets_per_launch=200,buffer_mib=1"}) {
    ExpectEqualsBruteForce(0, absl::StrCat("gather_gemm_scatter:", options), problem,
                           cuda->context);
  }
  ExpectEqualsBruteForce(0, "hash2col", problem, cuda->context);
}

// The largest kernel that a geometry may have, 32,768 offsets, most of them without a pair.
TEST(DataflowCudaTest, TheMostOffsets) {
  VOXCONV_NEED_CUDA(cuda);
  std::vector<int64_t> sizes(32768, 0);
  for (size_t k = 0; k < sizes.size(); k += 61) sizes[k] = static_cast<int64_t>(k % 19);
  const ConvProblem problem(RandomMap(70, 90, sizes, 5), 4, 8);
  for (const char* spec :
       {"direct", "fetch_on_demand", "gather_gemm_scatter", "gather_gemm_scatter:map=coded_csr",
        "gather_gemm_scatter:order=weight", "gather_gemm_scatter:order=tile",
        "gather_gemm_scatter:grouping=ragged", "fetch_on_demand:fusion=separate,copies=always",
        "hash2col", "implicit_gemm", "implicit_gemm:mask_sort=rarest",
        "implicit_gemm:mask_sort=rarest,splits=3"}) {
    ExpectEqualsBruteForce(0, spec, problem, cuda->context);
  }
}

TEST(DataflowCudaTest, FeaturesAtAnyAddress) {
  VOXCONV_NEED_CUDA(cuda);
  const ConvProblem problem(SubmanifoldMap(6, 0.4, 2), 16, 16);
  for (const char* spec :
       {"direct", "fetch_on_demand", "fetch_on_demand:fusion=separate,copies=always",
        "gather_gemm_scatter", "gather_gemm_scatter:order=weight",
        "gather_gemm_scatter:order=tile,tile=8", "gather_gemm_scatter:grouping=ragged", "hash2col",
        "implicit_gemm", "implicit_gemm:mma=3xtf32"}) {
    for (const int64_t skipped : {1, 2, 3}) {
      ExpectEqualsBruteForce(skipped, spec, problem, cuda->context);
    }
    // 16-bit values begin at addresses that f32 never does.
    const auto expected = RunAt(0, spec, problem, Precision::kF16, cuda->context);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto moved = RunAt(1, spec, problem, Precision::kF16, cuda->context);
    ASSERT_TRUE(moved.ok()) << moved.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_NEAR((*moved)[i], (*expected)[i], 0.1) << spec << " " << i;
    }
  }
}

// In f32 by tf32 products, numbers that are not finite, and those that tf32 would round to
// infinity, give what plain multiply-adds give. The rows are enough for the products of warpgroups,
// and all of them have the one offset, so that no padding meets the weights.
TEST(DataflowCudaTest, SplitProductsKeepInfinities) {
  VOXCONV_NEED_CUDA(cuda);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr int64_t kRows = 20000, kIn = 24, kOut = 64;
  const auto row = [](int64_t i) { return i * 1009 % kRows * kIn; };
  ConvProblem problem(RandomMap(kRows, kRows, {kRows}, 3), kIn, kOut);
  for (int i = 0; i < 8; ++i) {
    for (const float value : {kInf, -kInf, kNan, kMost, -kMost, 0.0f}) {
      static int64_t at = 0;
      ++at;
      problem.features[row(at) + at % kIn] = value;
    }
  }
  // A column of each kind. 1e-3 keeps products of the largest numbers finite.
  for (float& weight : problem.weights) weight *= 1e-3f;
  problem.weights[3 * kOut + 5] = kInf;
  problem.weights[4 * kOut + 6] = -kInf;
  problem.weights[5 * kOut + 7] = kNan;
  problem.weights[6 * kOut + 8] = kMost;
  problem.weights[7 * kOut + 9] = 0;
  const auto split = RunAt(0, "implicit_gemm:mma=3xtf32", problem, Precision::kF32, cuda->context);
  const auto plain = RunAt(0, "implicit_gemm", problem, Precision::kF32, cuda->context);
  ASSERT_TRUE(split.ok() && plain.ok()) << split.status() << plain.status();
  int64_t infinities = 0, nans = 0;
  for (size_t i = 0; i < plain->size(); ++i) {
    const float expected = (*plain)[i], actual = (*split)[i];
    if (std::isnan(expected)) {
      ++nans;
      ASSERT_TRUE(std::isnan(actual)) << i << ": " << actual;
    } else if (std::isinf(expected)) {
      ++infinities;
      ASSERT_EQ(actual, expected) << i;
    } else {
      ASSERT_NEAR(actual, expected, 1e-5 * std::max(1.0f, std::abs(expected))) << i;
    }
  }
  EXPECT_GT(infinities, 2 * kRows);  // two columns of them at least
  EXPECT_GT(nans, kRows);
}

TEST(DataflowCudaTest, KeptPassesAreTheSame) {
  VOXCONV_NEED_CUDA(cuda);
  Registry registry;
  for (const auto& add :
       {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter, RegisterHash2col,
        RegisterImplicitGemm, RegisterDirectCuda, RegisterGatherGemmScatterCuda,
        RegisterHash2colCuda, RegisterImplicitGemmCuda}) {
    ASSERT_TRUE(add(registry).ok());
  }
  // fetch_on_demand adds up in any order, so its sums are not equal bit by bit.
  for (const std::string spec : {"direct", "gather_gemm_scatter", "hash2col", "implicit_gemm",
                                 "implicit_gemm:splits=2,mask_sort=gray"}) {
    const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
    for (const Precision precision : {Precision::kF32, Precision::kF16}) {
      ExpectKeptPassesAreTheSame(*dataflow, spec, precision, cuda->context);
    }
  }
}

// The refusal comes before any work, so this needs no second device.
TEST(DataflowCudaTest, RefusesFeaturesOfAnotherDevice) {
  VOXCONV_NEED_CUDA(cuda);
  const ExecutionContext& context = cuda->context;
  Registry registry;
  ASSERT_TRUE(RegisterDirect(registry).ok() && RegisterDirectCuda(registry).ok());
  const auto dataflow = *registry.dataflows().Create("direct", BackendKind::kCuda);
  const KernelMap map = ToKernelMap(RandomMap(9, 9, {9}, 3), context);
  const Tensor x = *Tensor::Create(9, 4, DType::kF32, context);
  const Tensor w = *Tensor::Create(4, 4, DType::kF32, context);
  Workspace workspace;
  const auto refusal = [&](const TensorView& input, const TensorView& weights) {
    return std::string(
        RunConvolution(*dataflow, map, input, weights, Precision::kF32, workspace, context)
            .status()
            .message());
  };
  TensorView elsewhere = x.view();
  elsewhere.device.index = 1;
  EXPECT_EQ(refusal(elsewhere, w.view()),
            "features: it lies in device 1; the backend takes device 0");
  elsewhere = w.view();
  elsewhere.device.index = 1;
  EXPECT_EQ(refusal(x.view(), elsewhere),
            "weights: it lies in device 1; the backend takes device 0");
}

TEST(StreamForkTest, BranchesRunBetweenWhatWasBeforeAndWhatComesAfter) {
  VOXCONV_NEED_CUDA(cuda);
  const ExecutionContext& context = cuda->context;
  constexpr int64_t kBytes = int64_t{8} << 20;
  for (int repeat = 0; repeat < 5; ++repeat) {
    Array<char> first = *AllocateArray<char>(kBytes, context);
    std::vector<Array<char>> copies;
    copies.reserve(4);
    for (int i = 0; i < 4; ++i) copies.push_back(*AllocateArray<char>(kBytes, context));
    const auto copy = [&](const Array<char>& from, Array<char>& to, const ExecutionContext& on) {
      return cuda->backend->Copy(to.data(), to.space(), from.data(), from.space(), kBytes,
                                 *on.stream);
    };
    ASSERT_TRUE(cuda->backend->FillBytes(first.data(), 7 + repeat, kBytes, *context.stream).ok());
    StreamFork fork(context);
    ASSERT_TRUE(fork.Open(4).ok());
    for (int i = 0; i < fork.size(); ++i) {
      ASSERT_TRUE(copy(first, copies[i], fork.branch(i)).ok());
    }
    ASSERT_TRUE(fork.Join().ok());
    for (const Array<char>& each : copies) {
      const std::vector<char> host = *CopyToHost(each, context);
      EXPECT_EQ(host, std::vector<char>(kBytes, static_cast<char>(7 + repeat)));
    }
  }
}

}  // namespace
}  // namespace voxconv
