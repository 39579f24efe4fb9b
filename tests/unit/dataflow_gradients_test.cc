// SPDX-License-Identifier: Apache-2.0
// Every dataflow has all three passes: gradients against the reference, on the CPU in f32.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/convolution.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"
#include "voxconv/reference_cpu/convolution.h"

namespace voxconv {
namespace {

// A strided 3x3x3 layer (stride 2) over the voxels of a side^3 block of which `density` are
// present.
HostMap StridedMap(int side, double density, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution present(density);
  std::vector<reference::Coord> inputs;
  for (int i = 0; i < side * side * side; ++i) {
    if (present(random)) inputs.push_back({0, i / side / side, i / side % side, i % side});
  }
  const reference::Geometry geometry{.kind = reference::Kind::kStrided, .stride = {2, 2, 2}};
  const std::vector<reference::Coord> outputs = reference::OutputCoordinates(inputs, geometry);
  const reference::KernelMap map = reference::BuildKernelMap(inputs, outputs, geometry);
  HostMap host{static_cast<int64_t>(inputs.size()), static_cast<int64_t>(outputs.size()), {}};
  host.pairs.resize(map.num_offsets);
  for (int k = 0; k < map.num_offsets; ++k) {
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      host.pairs[k].emplace_back(map.in[i], map.out[i]);
    }
  }
  return host;
}

reference::KernelMap ReferenceMap(const HostMap& host) {
  reference::KernelMap map{host.num_offsets(), {0}, {}, {}};
  for (const auto& pairs : host.pairs) {
    for (const auto& [p, q] : pairs) {
      map.in.push_back(p);
      map.out.push_back(q);
    }
    map.offset_ptr.push_back(static_cast<int64_t>(map.in.size()));
  }
  return map;
}

struct Gradients {
  std::vector<float> input, weights;
  Counters input_work;
};

class GradientsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& add : {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter,
                            RegisterHash2col, RegisterImplicitGemm}) {
      ASSERT_TRUE(add(registry_).ok());
    }
  }

  // Onto memory that holds NaN.
  static absl::StatusOr<Gradients> Compute(const Dataflow& dataflow, const ConvProblem& problem,
                                           const std::vector<float>& output_grad, int threads) {
    UnitCpu cpu(threads);
    const ExecutionContext& context = cpu.context;
    const KernelMap map = ToKernelMap(problem.map, context);
    const int64_t weight_rows = map.num_offsets() * problem.c_in;
    const auto upload = [&](const std::vector<float>& values, int64_t rows, int64_t channels) {
      return Tensor::FromHost(values, rows, channels, context);
    };
    VOXCONV_ASSIGN_OR_RETURN(const Tensor x,
                             upload(problem.features, map.num_inputs(), problem.c_in));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor w, upload(problem.weights, weight_rows, problem.c_out));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor dy,
                             upload(output_grad, map.num_outputs(), problem.c_out));
    const auto nan = [&](const Tensor& like) {
      const std::vector<float> values(like.rows() * like.channels(), NAN);
      return upload(values, like.rows(), like.channels());
    };
    VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, nan(x));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor dw, nan(w));
    Workspace workspace;
    VOXCONV_RETURN_IF_ERROR(RunInputGrad(dataflow, map, {dy.view(), w.view(), dx.view()},
                                         Precision::kF32, workspace, context));
    Gradients gradients;
    gradients.input_work = cpu.profile.counters;
    VOXCONV_RETURN_IF_ERROR(RunWeightGrad(dataflow, map, {x.view(), dy.view(), dw.view()},
                                          Precision::kF32, workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(gradients.input, dx.ToHost(context));
    VOXCONV_ASSIGN_OR_RETURN(gradients.weights, dw.ToHost(context));
    return gradients;
  }

  void CheckAllVariants(const ConvProblem& problem) const {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<float> dy(problem.map.num_outputs * problem.c_out);
    for (float& value : dy) value = normal(random);
    const reference::KernelMap map = ReferenceMap(problem.map);
    const reference::ConvShape shape{problem.map.num_inputs, problem.map.num_outputs, problem.c_in,
                                     problem.c_out};
    const std::vector<double> dx = reference::BackwardInput(map, shape, dy, problem.weights);
    const std::vector<double> dw = reference::BackwardWeight(map, shape, problem.features, dy);
    int checked = 0;
    for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
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
    EXPECT_GE(checked, 30);
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

}  // namespace
}  // namespace voxconv
