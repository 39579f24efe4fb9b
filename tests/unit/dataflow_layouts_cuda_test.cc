// SPDX-License-Identifier: Apache-2.0
// The layouts that dataflows make on CUDA, of maps as mappings make them there (tables whose pairs
// are not counted), against those of the CPU.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "prepared_weights_cases.h"
#include "table_cases.h"
#include "unit_cpu.h"
#include "unit_cuda.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/registry.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

class LayoutsCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
  }
  const ExecutionContext& cpu() const { return cpu_.context; }
  const ExecutionContext& cuda() const { return unit_->context; }

  void CheckMaskSorted(const TableCase& c, const MaskSortedRule& rule) const {
    SCOPED_TRACE(testing::Message() << c.inputs << " to " << c.outputs << " rows, " << c.offsets
                                    << " offsets: " << rule.Key());
    const KernelMap source = UploadTable(c, c.masks, cuda()),
                    expected_source = UploadTable(c, false, cpu());
    auto arrays = SortMasksCuda(source, rule, cuda());
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    const MaskSorted actual(source, rule.order, *std::move(arrays));
    const MaskSorted expected(expected_source, rule.order,
                              *SortMasksCpu(expected_source, rule, cpu()));
    EXPECT_FALSE(actual.map().counts_known());  // nothing was counted on the way
    if (c.masks && rule.splits == 1) {          // nor made anew
      EXPECT_EQ(actual.arrays().masks.data(), source.table().masks.data());
    }
    ExpectSameArray(actual.arrays().masks.array(), expected.arrays().masks.array(), cuda());
    if (actual.arrays().row_order.size() > 0) {
      ExpectSameArray(actual.arrays().row_order, expected.arrays().row_order, cuda());
    }
    const KernelMap pairs = *actual.ToPairs(cuda());
    ExpectSamePairs(pairs, *expected.ToPairs(cpu()), cuda());
    const absl::Status valid = actual.Validate(cuda());
    EXPECT_TRUE(valid.ok()) << valid;
  }

  UnitCpu cpu_{1};
  std::unique_ptr<UnitCuda> unit_;
};

TEST_F(LayoutsCudaTest, SortsMasksAsTheCpuDoes) {
  for (const TableCase& c : kTableCases) {
    for (const MaskOrder order : kMaskOrders) {
      for (const int splits : {1, 2, 3}) {
        if (splits <= c.offsets) CheckMaskSorted(c, {order, splits});
      }
    }
  }
}

// More offsets than what is known of each finds room for in shared memory.
TEST_F(LayoutsCudaTest, OrdersRowsOfTheLargestKernels) {
  CheckMaskSorted({50, 60, 29791, true}, {MaskOrder::kRarest, 1});
}

TEST_F(LayoutsCudaTest, RefusesSplits) {
  const KernelMap map = UploadTable({5, 5, 3, false}, false, cuda());
  EXPECT_EQ(SortMasksCuda(map, {MaskOrder::kGray, 4}, cuda()).status().message(),
            "splits 4: allowed are 1..3");
}

TEST_F(LayoutsCudaTest, FindsPositionsAsTheCpuDoes) {
  for (const TableCase& c : kTableCases) {
    SCOPED_TRACE(testing::Message()
                 << c.inputs << " to " << c.outputs << " rows, " << c.offsets << " offsets");
    const KernelMap pairs =
        *cuda().backend->map_ops().To(MapForm::kPairs, UploadTable(c, c.masks, cuda()), cuda());
    const KernelMap expected =
        *cpu().backend->map_ops().To(MapForm::kPairs, UploadTable(c, false, cpu()), cpu());
    const auto dense = *MakePositionLayout(CudaPositionLayouts(), "dense_tables", pairs, cuda());
    const auto csr = *MakePositionLayout(CudaPositionLayouts(), "coded_csr", pairs, cuda());
    for (const PreparedMap* layout : {dense.get(), csr.get()}) {
      const absl::Status valid = layout->Validate(cuda());
      EXPECT_TRUE(valid.ok()) << valid;
      ExpectSamePairs(*layout->ToPairs(cuda()), expected, cuda());
    }
    const auto cpu_dense =
        *MakePositionLayout(CpuPositionLayouts(), "dense_tables", expected, cpu());
    const auto cpu_csr = *MakePositionLayout(CpuPositionLayouts(), "coded_csr", expected, cpu());
    const auto& tables = static_cast<const DenseTables&>(*dense).arrays();
    const auto& cpu_tables = static_cast<const DenseTables&>(*cpu_dense).arrays();
    ExpectSameArray(tables.in_table, cpu_tables.in_table, cuda());
    ExpectSameArray(tables.out_table, cpu_tables.out_table, cuda());
    const auto& codes = static_cast<const CodedCsr&>(*csr).arrays();
    const auto& cpu_codes = static_cast<const CodedCsr&>(*cpu_csr).arrays();
    ExpectSameArray(codes.in_ptr, cpu_codes.in_ptr, cuda());
    ExpectSameArray(codes.in_code, cpu_codes.in_code, cuda());
    ExpectSameArray(codes.out_ptr, cpu_codes.out_ptr, cuda());
    ExpectSameArray(codes.out_code, cpu_codes.out_code, cuda());
  }
}

Registry MakeRegistry() {
  Registry registry;
  for (const auto& add :
       {RegisterDirect, RegisterDirectCuda, RegisterFetchOnDemand, RegisterFetchOnDemandCuda,
        RegisterGatherGemmScatter, RegisterGatherGemmScatterCuda, RegisterHash2col,
        RegisterHash2colCuda, RegisterImplicitGemm, RegisterImplicitGemmCuda}) {
    EXPECT_TRUE(add(registry).ok());
  }
  return registry;
}

// What every dataflow prepares, of tables whose pairs are not counted, for the forward pass and for
// gradients, which read the transposed map.
TEST_F(LayoutsCudaTest, EveryPreparedMapHoldsThePairsOfItsMap) {
  const Registry registry = MakeRegistry();
  for (const TableCase& c : {TableCase{1000, 333, 33, true},
                             {700, 1000, 27, false},
                             {0, 5, 8, false},
                             {5, 0, 8, true}}) {
    const KernelMap forward =
        *cpu().backend->map_ops().To(MapForm::kPairs, UploadTable(c, false, cpu()), cpu());
    const KernelMap transposed = *cpu().backend->map_ops().Transpose(forward, cpu());
    const ConvShape shape{.c_in = 16, .c_out = 16, .num_offsets = c.offsets};
    for (const std::string& spec : registry.dataflows().Variants(BackendKind::kCuda)) {
      const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
      for (const Pass pass : kAllPasses) {
        if (!dataflow->Supports(pass, shape).ok) continue;
        SCOPED_TRACE(testing::Message()
                     << spec << " " << ToString(pass) << ", " << testing::PrintToString(c));
        const auto prepared =
            PrepareMap(*dataflow, pass, shape, UploadTable(c, c.masks, cuda()), cuda());
        ASSERT_TRUE(prepared.ok()) << prepared.status();
        const absl::Status valid = (*prepared)->Validate(cuda());
        EXPECT_TRUE(valid.ok()) << valid;
        EXPECT_GE((*prepared)->bytes(), (*prepared)->map().bytes());
        const auto pairs = (*prepared)->ToPairs(cuda());
        ASSERT_TRUE(pairs.ok()) << pairs.status();
        const bool turned = dataflow->NeededMap(pass, shape).transposed;
        ExpectSamePairs(*pairs, turned ? transposed : forward, cuda());
      }
    }
  }
}

// Rows of whole vectors and others, and rows enough for the products of warpgroups.
TEST_F(LayoutsCudaTest, PreparedWeightsGiveTheSameBits) {
  const Registry registry = MakeRegistry();
  const std::vector<ConvProblem> problems = {{DensityMap(70, 50, 27, 0.3), 16, 20},
                                             {DensityMap(3000, 2500, 27, 0.2), 64, 64},
                                             {DensityMap(3000, 2500, 27, 0.2), 33, 70},
                                             {DensityMap(3000, 2500, 8, 0.5), 96, 128}};
  int readers = 0;
  for (const std::string& spec : registry.dataflows().Variants(BackendKind::kCuda)) {
    const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
    for (const ConvProblem& problem : problems) {
      for (const Precision precision : {Precision::kF32, Precision::kTf32, Precision::kF16}) {
        const ConvShape shape = problem.ShapeIn(precision);
        if (!dataflow->Supports(Pass::kForward, shape).ok) continue;
        if (!dataflow->CapabilityOf(Pass::kForward, shape).deterministic) continue;
        SCOPED_TRACE(testing::Message() << spec << ", " << ToString(precision) << ": "
                                        << testing::PrintToString(problem));
        readers += PreparedWeightsGiveTheSameBits(*dataflow, problem, precision, cuda()) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(readers, 0);
}

TEST_F(LayoutsCudaTest, NothingIsPreparedOfNoWeights) {
  const Registry registry = MakeRegistry();
  for (const std::string& spec : registry.dataflows().Variants(BackendKind::kCuda)) {
    SCOPED_TRACE(spec);
    const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
    for (const Precision precision : {Precision::kF32, Precision::kTf32, Precision::kF16}) {
      ExpectNothingIsPreparedOfNoWeights(*dataflow, precision, cuda());
    }
  }
}

TEST_F(LayoutsCudaTest, WeightsThatWerePreparedForAnotherShapeAreRefused) {
  const Registry registry = MakeRegistry();
  const auto dataflow = *registry.dataflows().Create("implicit_gemm", BackendKind::kCuda);
  ExpectOtherShapesAreRefused(*dataflow, ConvProblem(DensityMap(70, 50, 27, 0.3), 33, 70),
                              Precision::kF16, cuda());
}

}  // namespace
}  // namespace voxconv
