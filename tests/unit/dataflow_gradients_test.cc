// SPDX-License-Identifier: Apache-2.0
// Every dataflow has all three passes: gradients against the reference, on the CPU in f32.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dataflow_test_util.h"
#include "gradient_test_util.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"
#include "voxconv/reference_cpu/convolution.h"

namespace voxconv {
namespace {

class GradientsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& add : {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter,
                            RegisterHash2col, RegisterImplicitGemm}) {
      ASSERT_TRUE(add(registry_).ok());
    }
  }

  static absl::StatusOr<Gradients> Compute(const Dataflow& dataflow, const ConvProblem& problem,
                                           const std::vector<float>& output_grad, int threads) {
    UnitCpu cpu(threads);
    return ComputeGradients(dataflow, problem, output_grad, {}, cpu.context);
  }

  static std::vector<float> RandomOutputGrad(const ConvProblem& problem) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<float> dy(problem.map.num_outputs * problem.c_out);
    for (float& value : dy) value = normal(random);
    return dy;
  }

  // Of all dataflows, or of the one of this name.
  void CheckAllVariants(const ConvProblem& problem, const std::string& name = "") const {
    const std::vector<float> dy = RandomOutputGrad(problem);
    const reference::KernelMap map = ReferenceMap(problem.map);
    const reference::ConvShape shape{problem.map.num_inputs, problem.map.num_outputs, problem.c_in,
                                     problem.c_out};
    const std::vector<double> dx = reference::BackwardInput(map, shape, dy, problem.weights);
    const std::vector<double> dw = reference::BackwardWeight(map, shape, problem.features, dy);
    int checked = 0;
    for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
      if (!spec.starts_with(name)) continue;
      SCOPED_TRACE(testing::Message() << spec << " on " << testing::PrintToString(problem));
      const auto dataflow = *registry_.dataflows().Create(spec, BackendKind::kCpu);
      const ConvShape conv = problem.ShapeIn(Precision::kF32);
      if (!dataflow->Supports(Pass::kInputGrad, conv).ok) continue;  // CUDA's options
      ++checked;
      EXPECT_EQ(dataflow->NeededMap(Pass::kInputGrad, conv).transposed, !problem.map.symmetric);
      const auto one = Compute(*dataflow, problem, dy, 1);
      ASSERT_TRUE(one.ok()) << one.status();
      ExpectNearReference(one->input, dx, problem.map.num_offsets() * problem.c_out);
      ExpectNearReference(one->weights, dw, problem.map.num_outputs);
      EXPECT_EQ(one->input_work.true_pairs, problem.map.num_pairs());
      for (const int threads : {1, 2}) {
        const auto again = Compute(*dataflow, problem, dy, threads);
        ASSERT_TRUE(again.ok()) << again.status();
        EXPECT_TRUE(SameBits(again->input, one->input)) << threads << " threads";
        EXPECT_TRUE(SameBits(again->weights, one->weights)) << threads << " threads";
      }
    }
    EXPECT_GE(checked, name.empty() ? 30 : 1);
  }

  Registry registry_;
};

TEST_F(GradientsTest, SymmetricSubmanifoldMap) {
  CheckAllVariants({SubmanifoldMap(10, 0.4, 1), 9, 20});
}

TEST_F(GradientsTest, StridedMap) {
  const HostMap map = StridedMap(13, 0.3, 2);
  EXPECT_GT(map.num_inputs, map.num_outputs);
  CheckAllVariants({map, 20, 9});
}

TEST_F(GradientsTest, MapsWithoutRowsOrPairs) {
  for (const HostMap& map :
       {RandomMap(0, 5, {0, 0}, 1), RandomMap(5, 0, {0, 0}, 1), RandomMap(5, 6, {0, 0, 0}, 1)}) {
    CheckAllVariants({map, 3, 2});
  }
}

// A column of 27 x 64 floats: 151 rows a MiB. H-CNN's input gradient has a column for each output
// (Equation 8), and so has the weight gradient (Equation 7).
TEST_F(GradientsTest, Hash2colInBlocksOfColumns) {
  for (const HostMap& map : {SubmanifoldMap(10, 0.4, 1), StridedMap(13, 0.3, 2)}) {
    const ConvProblem problem(map, 64, 16);
    CheckAllVariants(problem, "hash2col");
    const auto dataflow =
        *registry_.dataflows().Create("hash2col:workspace_mib=1", BackendKind::kCpu);
    const auto gradients = Compute(*dataflow, problem, RandomOutputGrad(problem), 1);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    const int64_t blocks = (map.num_outputs + 150) / 151;
    EXPECT_GT(blocks, 1);
    for (const Counters& work : {gradients->input_work, gradients->weight_work}) {
      EXPECT_EQ(work.padded_pairs, map.num_outputs * 27);
      EXPECT_EQ(work.launches, blocks);
      // The columns, and the weights side by side.
      EXPECT_LE(work.peak_workspace, (int64_t{1} << 20) + 27 * 64 * 16 * 4);
    }
  }
}

// Columns hold zeros where an output has no pair. Zero times infinity must not reach the gradient
// of an offset that the output does not have.
TEST_F(GradientsTest, NonFiniteOutputGradientsStayInTheirOffsets) {
  const ConvProblem problem(RandomMap(6, 5, {3, 0, 5}, 1), 2, 3);
  std::vector<float> dy = RandomOutputGrad(problem);
  const int32_t row = problem.map.pairs[0][0].second;
  dy[row * 3 + 1] = INFINITY;
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    SCOPED_TRACE(spec);
    const auto dataflow = *registry_.dataflows().Create(spec, BackendKind::kCpu);
    if (!dataflow->Supports(Pass::kWeightGrad, problem.ShapeIn(Precision::kF32)).ok) continue;
    const auto gradients = Compute(*dataflow, problem, dy, 2);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    for (size_t i = 0; i < gradients->weights.size(); ++i) {
      const bool reached = i / 6 != 1 && i % 3 == 1;  // [K, C_in, C_out]; all rows have offset 2
      EXPECT_EQ(std::isfinite(gradients->weights[i]), !reached) << i;
    }
  }
}

TEST_F(GradientsTest, KeptPassesAreTheSame) {
  UnitCpu cpu(2);
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    const auto dataflow = *registry_.dataflows().Create(spec, BackendKind::kCpu);
    if (!dataflow->Supports(Pass::kForward, {16, 24, 3, false, ConvTypes::Of(Precision::kF32)})
             .ok) {
      continue;
    }
    ExpectKeptPassesAreTheSame(*dataflow, spec, Precision::kF32, cpu.context);
  }
}

}  // namespace
}  // namespace voxconv
