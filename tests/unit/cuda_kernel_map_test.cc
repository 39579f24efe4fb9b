// SPDX-License-Identifier: Apache-2.0
// The two forms of kernel maps on CUDA, made of tables whose pairs are not counted, against those
// of the CPU.
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "table_cases.h"
#include "unit_cpu.h"
#include "unit_cuda.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

class CudaKernelMapTest : public testing::TestWithParam<TableCase> {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
  }
  const ExecutionContext& cpu() const { return cpu_.context; }
  const ExecutionContext& cuda() const { return unit_->context; }
  MapOps& cpu_ops() const { return cpu_.backend->map_ops(); }
  MapOps& ops() const { return unit_->backend->map_ops(); }

  KernelMap CudaMap() const { return UploadTable(GetParam(), GetParam().masks, cuda()); }
  KernelMap CpuMap() const { return UploadTable(GetParam(), false, cpu()); }
  KernelMap CpuPairs() const { return *cpu_ops().To(MapForm::kPairs, CpuMap(), cpu()); }
  // Of the map with inputs and outputs exchanged.
  KernelMap CpuTransposedPairs() const { return *cpu_ops().Transpose(CpuPairs(), cpu()); }

  void ExpectValid(const KernelMap& map) const {
    const absl::Status status = map.Validate(cuda());
    EXPECT_TRUE(status.ok()) << status;
  }

  UnitCpu cpu_{1};
  std::unique_ptr<UnitCuda> unit_;
};

TEST_P(CudaKernelMapTest, CountsPairs) {
  const KernelMap map = CudaMap();
  ASSERT_FALSE(map.counts_known());
  // The counts need no wait for what is queued behind their counting.
  ASSERT_TRUE(map.StartCounting(cuda()).ok());
  ASSERT_TRUE(map.StartCounting(cuda()).ok());
  EXPECT_FALSE(map.counts_known());
  ASSERT_TRUE(map.EnsureCounts(cuda()).ok());
  EXPECT_EQ(map.offset_ptr(), CpuPairs().offset_ptr());
}

TEST_P(CudaKernelMapTest, TableToPairsAndBack) {
  const KernelMap source = CudaMap();
  const auto pairs = ops().To(MapForm::kPairs, source, cuda());
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_TRUE(source.counts_known());  // counted on the way
  ExpectValid(*pairs);
  ExpectSamePairs(*pairs, CpuPairs(), cuda());
  const auto table = ops().To(MapForm::kNeighbourTable, *pairs, cuda());
  ASSERT_TRUE(table.ok()) << table.status();
  ExpectValid(*table);
  ExpectSameArray(table->table().table.array(), CpuMap().table().table.array(), cuda());
}

TEST_P(CudaKernelMapTest, TransposesATableWithoutCounting) {
  const KernelMap source = CudaMap();
  const int64_t waits = unit_->backend->synchronisations();
  const auto transposed = ops().Transpose(source, cuda());
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  EXPECT_EQ(unit_->backend->synchronisations(), waits);
  EXPECT_EQ(transposed->form(), MapForm::kNeighbourTable);
  EXPECT_FALSE(transposed->counts_known());
  EXPECT_EQ(transposed->num_inputs(), GetParam().outputs);
  EXPECT_EQ(transposed->num_outputs(), GetParam().inputs);
  ExpectValid(*transposed);
  ExpectSamePairs(*ops().To(MapForm::kPairs, *transposed, cuda()), CpuTransposedPairs(), cuda());
}

TEST_P(CudaKernelMapTest, TransposesPairs) {
  const KernelMap pairs = *ops().To(MapForm::kPairs, CudaMap(), cuda());
  const auto transposed = ops().Transpose(pairs, cuda());
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  ExpectValid(*transposed);
  ExpectSamePairs(*transposed, CpuTransposedPairs(), cuda());
  ExpectSamePairs(*ops().Transpose(*transposed, cuda()), CpuPairs(), cuda());
}

INSTANTIATE_TEST_SUITE_P(Tables, CudaKernelMapTest, testing::ValuesIn(kTableCases));
// More offsets than what is known of each finds room for in shared memory.
INSTANTIATE_TEST_SUITE_P(LargestKernel, CudaKernelMapTest,
                         testing::Values(TableCase{50, 60, 29791, true}));

}  // namespace
}  // namespace voxconv
