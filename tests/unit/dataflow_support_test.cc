// SPDX-License-Identifier: Apache-2.0
// What all dataflows refuse alike.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/convolution.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry AllDataflows() {
  Registry registry;
  for (const auto& add : {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter,
                          RegisterHash2col, RegisterImplicitGemm}) {
    EXPECT_TRUE(add(registry).ok());
  }
  return registry;
}

TEST(DataflowSupportTest, OneWordingForAll) {
  const Registry registry = AllDataflows();
  ASSERT_EQ(registry.dataflows().entries().size(), 5);
  for (const auto& [name, entry] : registry.dataflows().entries()) {
    const auto dataflow = *registry.dataflows().Create(name, BackendKind::kCpu);
    for (const Pass pass : kAllPasses) {
      const Capability f32 = dataflow->CapabilityOf(pass, ConvShape{16, 16, 27});
      EXPECT_TRUE(f32.support.ok) << name << ": " << f32.support.reason;
      EXPECT_TRUE(f32.deterministic) << name;
      EXPECT_FALSE(f32.fuses_epilogue) << name;
      EXPECT_FALSE(f32.rounds_partial_sums) << name;
      for (Precision precision : {Precision::kTf32, Precision::kF16, Precision::kBF16}) {
        const ConvShape shape{16, 16, 27, false, ConvTypes::Of(precision)};
        if ((name == "implicit_gemm" || name == "fetch_on_demand") &&
            precision == Precision::kBF16) {
          const char* none = "no gradients in bf16: the forward pass alone has it";
          EXPECT_EQ(dataflow->Supports(pass, shape).reason, pass == Pass::kForward ? "" : none);
          continue;
        }
        EXPECT_EQ(dataflow->Supports(pass, shape).reason,
                  name + " on the CPU takes f32 only, not " + std::string(ToString(precision)));
      }
    }
  }
}

// A file of arrays may have [N, 0] features; blocks are cut by dividing by the channels.
TEST(DataflowSupportTest, NoChannelsAreRefused) {
  const Registry registry = AllDataflows();
  ASSERT_EQ(registry.dataflows().entries().size(), 5);
  for (const auto& [name, entry] : registry.dataflows().entries()) {
    const auto dataflow = *registry.dataflows().Create(name, BackendKind::kCpu);
    for (const auto& [c_in, c_out] : {std::pair<int64_t, int64_t>{0, 4}, {4, 0}, {0, 0}}) {
      UnitCpu cpu(1);
      const std::vector<int32_t> rows = {0, 1};
      PairList pairs{*CopyToBackend<int32_t>(rows, cpu.context),
                     *CopyToBackend<int32_t>(rows, cpu.context)};
      const KernelMap map(2, 2, {0, 2}, std::move(pairs));
      const Tensor input = *Tensor::Create(2, c_in, DType::kF32, cpu.context);
      const Tensor weights = *Tensor::Create(c_in, c_out, DType::kF32, cpu.context);
      Workspace workspace;
      const absl::Status status = RunConvolution(*dataflow, map, input.view(), weights.view(),
                                                 Precision::kF32, workspace, cpu.context)
                                      .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(std::string(status.message()), HasSubstr("at least 1 of each"));
    }
  }
}

}  // namespace
}  // namespace voxconv
