// SPDX-License-Identifier: Apache-2.0
// hash2col and col2hash in several blocks of columns, in every dtype. `voxconv verify --backend
// cuda` compares all dataflows with the reference, on one block in most cases.
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gradient_test_util.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/dataflows/hash2col/register.h"

namespace voxconv {
namespace {

// Small whole numbers: products and sums are exact in f32, and operands in every dtype.
std::vector<float> WholeNumbers(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 5) - 2);
  return values;
}

// Half a unit in the last place of a sum that is stored as `dtype`, relative to it.
double RoundingOf(DType dtype) {
  if (dtype == DType::kF32) return 0;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

void ExpectRounded(const std::vector<float>& values, const std::vector<double>& expected,
                   DType dtype) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], RoundingOf(dtype) * std::abs(expected[i])) << i;
  }
}

void CheckGradients(const std::string& spec, const ConvProblem& problem, Precision precision,
                    const UnitCuda& cuda) {
  SCOPED_TRACE(testing::Message() << spec << ", " << ToString(precision) << ", "
                                  << testing::PrintToString(problem));
  Registry registry;
  ASSERT_TRUE(RegisterHash2col(registry).ok() && RegisterHash2colCuda(registry).ok());
  const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
  const std::vector<float> dy = WholeNumbers(problem.map.num_outputs * problem.c_out, 13);
  const reference::KernelMap map = ReferenceMap(problem.map);
  const reference::ConvShape shape{problem.map.num_inputs, problem.map.num_outputs, problem.c_in,
                                   problem.c_out};
  const std::vector<double> dx = reference::BackwardInput(map, shape, dy, problem.weights);
  const std::vector<double> dw = reference::BackwardWeight(map, shape, problem.features, dy);
  const DType stored = StorageOf(precision);
  for (const DType weights_grad : {stored, DType::kF32}) {
    const GradientTypes types{precision, weights_grad};
    const auto gradients = ComputeGradients(*dataflow, problem, dy, types, cuda.context);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    ExpectRounded(gradients->input, dx, stored);
    ExpectRounded(gradients->weights, dw, weights_grad);
    const auto again = ComputeGradients(*dataflow, problem, dy, types, cuda.context);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(SameBits(again->input, gradients->input));
    EXPECT_TRUE(SameBits(again->weights, gradients->weights));
  }
}

TEST(Hash2colCudaTest, GradientsInBlocksOfColumns) {
  VOXCONV_NEED_CUDA(cuda);
  const std::vector<HostMap> maps = {SubmanifoldMap(10, 0.4, 1), StridedMap(13, 0.3, 2),
                                     RandomMap(0, 5, {0, 0}, 1), RandomMap(5, 0, {0, 0}, 1),
                                     RandomMap(5, 6, {0, 0, 0}, 1)};
  for (const HostMap& map : maps) {
    for (const auto& [c_in, c_out] : {std::pair{64, 16}, {33, 17}, {3, 5}}) {
      ConvProblem problem(map, c_in, c_out);
      problem.features = WholeNumbers(problem.features.size(), 11);
      problem.weights = WholeNumbers(problem.weights.size(), 12);
      for (const char* spec : {"hash2col", "hash2col:workspace_mib=1"}) {
        for (const Precision precision :
             {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
          CheckGradients(spec, problem, precision, *cuda);
        }
      }
    }
  }
}

// Also where features begin at any address.
TEST(Hash2colCudaTest, TransposedLayersByCol2hash) {
  VOXCONV_NEED_CUDA(cuda);
  Registry registry;
  ASSERT_TRUE(RegisterHash2col(registry).ok() && RegisterHash2colCuda(registry).ok());
  for (const auto& [c_in, c_out] : {std::pair{16, 64}, {32, 33}, {3, 5}}) {
    ConvProblem problem(DensityMap(300, 700, 27, 0.1), c_in, c_out);
    problem.features = WholeNumbers(problem.features.size(), 11);
    problem.weights = WholeNumbers(problem.weights.size(), 12);
    const std::vector<double> expected = problem.BruteForce();
    for (const char* spec :
         {"hash2col", "hash2col:workspace_mib=1", "hash2col:transposed=hash2col,workspace_mib=1"}) {
      for (const Precision precision :
           {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
        for (const int64_t skipped : {0, 1}) {
          SCOPED_TRACE(testing::Message() << spec << ", " << ToString(precision) << ", " << c_in
                                          << " -> " << c_out << ", at " << skipped);
          const auto output = RunOn(cuda->context, registry, spec, problem, skipped, precision);
          ASSERT_TRUE(output.ok()) << output.status();
          ExpectRounded(*output, expected, StorageOf(precision));
        }
      }
    }
  }
}

// Bitwise the backend's operators where one block holds all columns.
TEST(Hash2colCudaTest, PoolingThroughColumns) {
  VOXCONV_NEED_CUDA(cuda);
  Registry registry;
  ASSERT_TRUE(RegisterHash2col(registry).ok() && RegisterHash2colCuda(registry).ok());
  const auto dataflow = *registry.dataflows().Create("hash2col", BackendKind::kCuda);
  const auto blocks = *registry.dataflows().Create("hash2col:workspace_mib=1", BackendKind::kCuda);
  TensorOps& ops = cuda->backend->tensor_ops();
  const ExecutionContext& context = cuda->context;
  for (const HostMap& host : {SubmanifoldMap(10, 0.4, 1), StridedMap(13, 0.3, 2),
                              RandomMap(0, 5, {0, 0}, 1), RandomMap(5, 0, {0, 0}, 1)}) {
    const KernelMap map = ToKernelMap(host, context);
    for (const PoolMode mode :
         {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t channels : {1, 5, 64}) {
          SCOPED_TRACE(testing::Message() << ToString(mode) << " " << ToString(dtype) << " "
                                          << host.num_outputs << " x " << channels);
          const auto matrix = [&](int64_t rows, unsigned seed) {
            return *Tensor::FromHost(WholeNumbers(rows * channels, seed), rows, channels, context,
                                     dtype);
          };
          const Tensor x = matrix(host.num_inputs, 1), g = matrix(host.num_outputs, 2);
          const auto run = [&](const Dataflow* through) {
            const Tensor y = matrix(host.num_outputs, 3), back = matrix(host.num_inputs, 4);
            Array<int32_t> taken =
                *AllocateArray<int32_t>(mode == PoolMode::kMax ? y.rows() * channels : 0, context);
            int32_t* used = mode == PoolMode::kMax ? taken.data() : nullptr;
            const PoolArgs pool{mode, x.view(), y.view(), used};
            const UnpoolArgs unpool{mode, g.view(), back.view(), used};
            if (through == nullptr) {
              EXPECT_TRUE(ops.Pool(map, mode, pool.input, pool.output, used, context).ok());
              EXPECT_TRUE(ops.Unpool(map, mode, unpool.input, used, unpool.output, context).ok());
            } else {
              EXPECT_EQ(RunPool(*through, map, pool, context), absl::OkStatus());
              EXPECT_EQ(RunUnpool(*through, map, unpool, context), absl::OkStatus());
            }
            std::vector<float> all = *y.ToHost(context);
            const std::vector<int32_t> switches = *CopyToHost(taken, context);
            for (const int32_t row : switches) {
              all.push_back(static_cast<float>(row));
            }
            const std::vector<float> unpooled = *back.ToHost(context);
            return std::pair{all, unpooled};
          };
          const auto expected = run(nullptr), whole = run(dataflow.get()),
                     parts = run(blocks.get());
          EXPECT_TRUE(SameBits(whole.first, expected.first));
          EXPECT_TRUE(SameBits(whole.second, expected.second));
          EXPECT_TRUE(SameBits(parts.first, expected.first));
          for (size_t i = 0; i < parts.second.size(); ++i) {
            EXPECT_NEAR(parts.second[i], expected.second[i],
                        1e-5 + 2 * RoundingOf(dtype) * std::abs(expected.second[i]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace voxconv
