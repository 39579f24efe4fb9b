// SPDX-License-Identifier: Apache-2.0
// The layouts that dataflows make of kernel maps, on the CPU.
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataflow_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prepared_weights_cases.h"
#include "unit_cpu.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

class LayoutsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& add : {RegisterDirect, RegisterFetchOnDemand, RegisterGatherGemmScatter,
                            RegisterHash2col, RegisterImplicitGemm}) {
      ASSERT_TRUE(add(registry_).ok());
    }
  }

  std::unique_ptr<const Dataflow> Make(const std::string& spec) const {
    return *registry_.dataflows().Create(spec, BackendKind::kCpu);
  }
  const ExecutionContext& context() const { return cpu_.context; }

  Registry registry_;
  UnitCpu cpu_{2};
};

void ExpectSamePairs(const KernelMap& actual, const KernelMap& expected) {
  EXPECT_EQ(actual.num_inputs(), expected.num_inputs());
  EXPECT_EQ(actual.num_outputs(), expected.num_outputs());
  EXPECT_EQ(actual.identity_offset(), expected.identity_offset());
  EXPECT_EQ(actual.symmetric(), expected.symmetric());
  EXPECT_EQ(actual.offset_ptr(), expected.offset_ptr());
  EXPECT_TRUE(
      std::ranges::equal(actual.pairs().in.array().host(), expected.pairs().in.array().host()));
  EXPECT_TRUE(
      std::ranges::equal(actual.pairs().out.array().host(), expected.pairs().out.array().host()));
}

// Nothing, one word of masks and several, an identity, offsets without pairs, rows without any.
std::vector<HostMap> Maps() {
  std::vector<HostMap> maps = {SubmanifoldMap(7, 0.4, 1),
                               RandomMap(160, 90, {40, 3, 0, 71, 12, 70, 1, 35}, 3),
                               RandomMap(80, 90, std::vector<int64_t>(40, 17), 4),
                               RandomMap(60, 50, std::vector<int64_t>(343, 2), 5),
                               RandomMap(9, 9, {9}, 3),
                               RandomMap(5, 6, {0, 0, 0}, 1),
                               RandomMap(0, 5, {0, 0}, 1),
                               RandomMap(5, 0, {0, 0}, 1),
                               RandomMap(5, 6, {}, 1)};
  return maps;
}

TEST_F(LayoutsTest, EveryLayoutHoldsThePairsOfItsMap) {
  const std::vector<HostMap> maps = Maps();
  std::vector<std::string> keys;
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    const auto dataflow = Make(spec);
    for (const HostMap& host : maps) {
      SCOPED_TRACE(testing::Message() << spec << ": " << host.num_offsets() << " offsets, "
                                      << host.num_inputs << " to " << host.num_outputs);
      const ConvShape shape{
          .c_in = 4, .c_out = 4, .num_offsets = host.num_offsets(), .symmetric = host.symmetric};
      // Options of CUDA alone, which change no layout. `keys` below shows that none is left out.
      if (!dataflow->Supports(Pass::kForward, shape).ok) continue;
      const MapNeed need = dataflow->NeededMap(Pass::kForward, shape);
      keys.push_back(need.layout);
      const KernelMap pairs = ToKernelMap(host, context());
      const auto prepared = PrepareMap(*dataflow, Pass::kForward, shape, pairs, context());
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      const absl::Status valid = (*prepared)->Validate(context());
      EXPECT_TRUE(valid.ok()) << valid;
      EXPECT_GE((*prepared)->bytes(), (*prepared)->map().bytes());
      const auto back = (*prepared)->ToPairs(context());
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(back->Validate(context()).ok()) << back->Validate(context());
      ExpectSamePairs(*back, pairs);
    }
  }
  for (const char* key : {"dense_tables", "coded_csr", "mask_sorted:order=none,splits=1",
                          "mask_sorted:order=mask,splits=3", "mask_sorted:order=gray,splits=2",
                          "mask_sorted:order=rarest,splits=1"}) {
    EXPECT_THAT(keys, testing::Contains(key));
  }
}

// An input gradient of a map that is not symmetric reads the transposed map.
TEST_F(LayoutsTest, LayoutsOfTheTransposedMap) {
  const HostMap host = RandomMap(160, 90, {40, 3, 0, 71, 12, 70, 1, 35}, 3);
  const KernelMap pairs = ToKernelMap(host, context());
  const KernelMap transposed = *context().backend->map_ops().Transpose(pairs, context());
  const ConvShape shape{.c_in = 4, .c_out = 8, .num_offsets = host.num_offsets()};
  for (const char* spec :
       {"gather_gemm_scatter", "gather_gemm_scatter:map=coded_csr", "implicit_gemm:splits=3"}) {
    const auto dataflow = Make(spec);
    EXPECT_TRUE(dataflow->NeededMap(Pass::kInputGrad, shape).transposed);
    const auto prepared = *PrepareMap(*dataflow, Pass::kInputGrad, shape, pairs, context());
    EXPECT_TRUE(prepared->Validate(context()).ok()) << prepared->Validate(context());
    ExpectSamePairs(*prepared->ToPairs(context()), transposed);
  }
}

TEST_F(LayoutsTest, NothingIsPreparedForAShapeThatIsNotSupported) {
  const KernelMap map = ToKernelMap(RandomMap(160, 90, {40, 3, 0, 71}, 3), context());
  const ConvShape shape{.c_in = 4,
                        .c_out = 4,
                        .num_offsets = map.num_offsets(),
                        .types = ConvTypes::Of(Precision::kF16)};
  for (const Pass pass : kAllPasses) {
    const auto prepared = PrepareMap(*Make("implicit_gemm"), pass, shape, map, context());
    EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented) << prepared.status();
    EXPECT_THAT(std::string(prepared.status().message()), testing::HasSubstr("f16"));
  }
}

TEST_F(LayoutsTest, PositionLayoutsKeepNoPairs) {
  const KernelMap map = ToKernelMap(RandomMap(160, 90, {40, 3, 0, 71}, 3), context());
  const auto dense = *MakePositionLayout(CpuPositionLayouts(), "dense_tables", map, context());
  const auto csr = *MakePositionLayout(CpuPositionLayouts(), "coded_csr", map, context());
  for (const PreparedMap* prepared : {dense.get(), csr.get()}) {
    EXPECT_EQ(prepared->map().form(), MapForm::kNone);
    EXPECT_EQ(prepared->map().num_pairs(), map.num_pairs());
  }
  EXPECT_EQ(dense->bytes(), (160 + 90) * 4 * 4);
  EXPECT_EQ(csr->bytes(), (161 + 91) * 4 + 2 * map.num_pairs() * 4);
}

// The counts alone are looked at before anything is allocated.
TEST_F(LayoutsTest, PositionLayoutsRefuseWhatTheirWordsCannotHold) {
  const int64_t many = int64_t{1} << 31;
  const KernelMap map(1, 1, {0, 5, many}, PairList());
  const auto refusal = [&](const char* key) {
    return std::string(
        MakePositionLayout(CpuPositionLayouts(), key, map, context()).status().message());
  };
  EXPECT_EQ(refusal("dense_tables"),
            "kernel map: 2147483648 pairs; dense tables hold at most 2147483647");
  EXPECT_EQ(refusal("coded_csr"),
            "kernel map: 2 offsets x 2147483648 pairs; coded CSR holds codes below 2^32");
}

TEST_F(LayoutsTest, OtherLayoutsAreRefusedByName) {
  const KernelMap pairs = ToKernelMap(RandomMap(9, 9, {9, 3}, 3), context());
  const KernelMap table =
      *context().backend->map_ops().To(MapForm::kNeighbourTable, pairs, context());
  const ConvShape shape{.c_in = 4, .c_out = 4, .num_offsets = 2};
  const auto gather = Make("gather_gemm_scatter");
  const auto implicit = Make("implicit_gemm");
  EXPECT_THAT(
      std::string(gather->Prepare(pairs, {.layout = "dense"}, context()).status().message()),
      HasSubstr("map layout 'dense'; it makes dense_tables and coded_csr"));
  const MapNeed other{.form = MapForm::kNeighbourTable,
                      .layout = "mask_sorted:order=gray,splits=1"};
  EXPECT_THAT(std::string(implicit->Prepare(table, other, context()).status().message()),
              HasSubstr("'mask_sorted:order=gray,splits=1'; for 2 offsets it makes "
                        "'mask_sorted:order=mask,splits=1'"));
  // What was not prepared, or for the other layout.
  const auto csr = *MakePositionLayout(CpuPositionLayouts(), "coded_csr", pairs, context());
  EXPECT_THAT(std::string(gather->Plan(Pass::kForward, *csr, shape, context()).status().message()),
              HasSubstr("the map was not prepared in the layout 'dense_tables'"));
  EXPECT_THAT(
      std::string(
          implicit->Plan(Pass::kForward, PreparedMap(table), shape, context()).status().message()),
      HasSubstr("the map was not prepared in the layout 'mask_sorted'"));
}

TEST_F(LayoutsTest, ValidateFindsWrongPositions) {
  const KernelMap pairs = ToKernelMap(RandomMap(4, 4, {2, 3}, 3), context());
  const auto make = [&](const std::vector<int32_t>& in_table) {
    const auto right = *MakePositionLayout(CpuPositionLayouts(), "dense_tables", pairs, context());
    const auto& out = static_cast<const DenseTables&>(*right).arrays().out_table;
    DenseTableArrays arrays{*CopyToBackend<int32_t>(in_table, context()),
                            *CopyToBackend<int32_t>(out.host(), context())};
    return DenseTables(pairs, std::move(arrays));
  };
  EXPECT_THAT(std::string(make({-1, -1}).Validate(context()).message()),
              HasSubstr("in_table has 2 entries instead of 8"));
  EXPECT_THAT(std::string(make({7, -1, -1, -1, -1, -1, -1, -1}).Validate(context()).message()),
              HasSubstr("in_table entry 0 is 7"));
  EXPECT_THAT(std::string(make({0, 2, -1, 3, -1, 4, -1, -1}).Validate(context()).message()),
              HasSubstr("in_table has 1 pairs of offset 0 instead of 2"));
  EXPECT_THAT(std::string(make({0, 2, 0, 3, -1, 4, -1, -1}).Validate(context()).message()),
              HasSubstr("in_table entry 2 is 0 as another entry of offset 0; all must differ"));
  EXPECT_EQ(make({7, -1, -1, -1, -1, -1, -1, -1}).ToPairs(context()).status().message(),
            "kernel map: row 0 names pair 7 of 5");
}

TEST_F(LayoutsTest, ValidateReadsNoCodesPastTheirEnd) {
  const std::vector<int32_t> wild = {0, 1000000, 1}, right = {0, 1, 1};
  const std::vector<uint32_t> codes = {0};
  CodedCsrArrays arrays{
      *CopyToBackend<int32_t>(wild, context()), *CopyToBackend<int32_t>(right, context()),
      *CopyToBackend<uint32_t>(codes, context()), *CopyToBackend<uint32_t>(codes, context())};
  const CodedCsr csr(KernelMap(2, 2, {0, 1}, PairList()), std::move(arrays));
  EXPECT_EQ(csr.Validate(context()).message(), "kernel map: in row pointers descend at row 1");
  EXPECT_EQ(csr.ToPairs(context()).status().message(),
            "kernel map: in row pointers descend at row 1");
}

class MaskSortedTest : public LayoutsTest {
 protected:
  // One row without inputs under 40 offsets.
  absl::Status Validate(std::vector<int32_t> split_ptr, int words, int64_t masks,
                        const std::vector<int32_t>& row_order, MaskOrder order) const {
    const std::vector<int32_t> entries(40, -1);
    const KernelMap table(1, 1, 40,
                          NeighbourTable{.table = *CopyToBackend<int32_t>(entries, context())});
    MaskSortedArrays arrays;
    arrays.masks = *CopyToBackend<uint32_t>(std::vector<uint32_t>(masks, 0), context());
    arrays.row_order = *CopyToBackend<int32_t>(row_order, context());
    arrays.words = words;
    arrays.split_ptr = std::move(split_ptr);
    return MaskSorted(table, order, std::move(arrays)).Validate(context());
  }
};

TEST_F(MaskSortedTest, ValidateFindsSplitsThatDoNotFit) {
  EXPECT_TRUE(Validate({0, 40}, 2, 2, {0}, MaskOrder::kMask).ok());
  EXPECT_TRUE(Validate({0, 20, 40}, 1, 2, {0, 0}, MaskOrder::kMask).ok());
  EXPECT_TRUE(Validate({0, 40}, 2, 2, {}, MaskOrder::kNone).ok());
  EXPECT_EQ(Validate({0, 40}, 1, 1, {0}, MaskOrder::kMask).message(),
            "kernel map: split 0 is 0..40; it must ascend and fit 1 words");
  EXPECT_EQ(Validate({0, 39}, 2, 2, {0}, MaskOrder::kMask).message(),
            "kernel map: split_ptr does not span the 40 offsets");
  EXPECT_EQ(Validate({0, 40}, 2, 1, {0}, MaskOrder::kMask).message(),
            "kernel map: masks has 1 entries instead of 2");
  EXPECT_EQ(Validate({0, 40}, 2, 2, {}, MaskOrder::kMask).message(),
            "kernel map: row_order has 0 entries instead of 1");
  EXPECT_EQ(Validate({0, 40}, 2, 2, {1}, MaskOrder::kMask).message(),
            "kernel map: row_order of split 0 is no permutation");
}

TEST_F(MaskSortedTest, RefusesSplits) {
  EXPECT_EQ(SplitOffsets(3, 4).status().message(), "splits 4: allowed are 1..3");
  EXPECT_EQ(SplitOffsets(3, 0).status().message(), "splits 0: allowed are 1..3");
  EXPECT_EQ(*SplitOffsets(0, 1), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(*SplitOffsets(8, 3), (std::vector<int32_t>{0, 2, 5, 8}));
}

// The neighbour table stays the map's own.
TEST_F(MaskSortedTest, SharesTheTable) {
  const KernelMap pairs = ToKernelMap(SubmanifoldMap(5, 0.5, 1), context());
  const KernelMap table =
      *context().backend->map_ops().To(MapForm::kNeighbourTable, pairs, context());
  const auto dataflow = Make("implicit_gemm");
  const MapNeed need = dataflow->NeededMap(Pass::kForward, {4, 4, 27});
  const auto prepared = *dataflow->Prepare(table, need, context());
  EXPECT_EQ(prepared->map().table().table.data(), table.table().table.data());
  const int64_t rows = table.num_outputs();
  EXPECT_EQ(prepared->bytes(), rows * 27 * 4 + rows * 4 + rows * 4);  // table, masks, row order
}

TEST_F(LayoutsTest, PreparedWeightsGiveTheSameBits) {
  std::vector<ConvProblem> problems = EdgeCases();
  // With buffers of 1 MiB this is done in passes. The first run finds other bytes in them than the
  // second.
  problems.emplace_back(DensityMap(1500, 1250, 27, 0.2), 64, 64);
  problems.emplace_back(DensityMap(150, 125, 27, 0.2), 32, 80);  // three parts of bf16
  std::vector<std::string> readers;
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    const auto dataflow = Make(spec);
    for (const ConvProblem& problem : problems) {
      if (!dataflow->Supports(Pass::kForward, problem.ShapeIn(Precision::kF32)).ok) continue;
      SCOPED_TRACE(testing::Message() << spec << ": " << testing::PrintToString(problem));
      if (PreparedWeightsGiveTheSameBits(*dataflow, problem, Precision::kF32, context())) {
        readers.push_back(spec);
      }
    }
  }
  EXPECT_THAT(readers, testing::Contains("fetch_on_demand"));
  EXPECT_THAT(readers, testing::Contains("implicit_gemm"));
}

// What is prepared knows that a weight is infinite, and keeps it to the pairs of its offset.
TEST_F(LayoutsTest, PreparedWeightsThatAreNotFinite) {
  ConvProblem problem(DensityMap(70, 50, 27, 0.3), 16, 20);
  problem.weights[5 * 16 * 20] = std::numeric_limits<float>::infinity();
  for (const char* spec : {"fetch_on_demand", "implicit_gemm"}) {
    EXPECT_TRUE(PreparedWeightsGiveTheSameBits(*Make(spec), problem, Precision::kF32, context()));
  }
}

TEST_F(LayoutsTest, NothingIsPreparedOfNoWeights) {
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    SCOPED_TRACE(spec);
    ExpectNothingIsPreparedOfNoWeights(*Make(spec), Precision::kF32, context());
  }
}

TEST_F(LayoutsTest, WeightsThatWerePreparedForAnotherShapeAreRefused) {
  const ConvProblem problem(DensityMap(70, 50, 27, 0.3), 16, 20);
  for (const char* spec : {"fetch_on_demand", "implicit_gemm"}) {
    ExpectOtherShapesAreRefused(*Make(spec), problem, Precision::kF32, context());
  }
}

}  // namespace
}  // namespace voxconv
