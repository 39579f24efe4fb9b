// SPDX-License-Identifier: Apache-2.0
// What `voxconv verify` does not see of mappings and output coordinates on CUDA: many rows, kernels
// of more offsets than one launch takes, chains of levels, refusals.
#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "unit_cuda.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/mapping/grid/register.h"
#include "voxconv/mapping/hash/register.h"
#include "voxconv/mapping/octree/register.h"
#include "voxconv/mapping/output_coords/register.h"
#include "voxconv/mapping/perfect_hash/register.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry MakeRegistry() {
  Registry registry;
  for (const auto& add :
       {RegisterGridMapping, RegisterGridMappingCuda, RegisterHashMapping, RegisterHashMappingCuda,
        RegisterOctreeMapping, RegisterOctreeMappingCuda, RegisterPerfectHashMapping,
        RegisterPerfectHashMappingCuda, RegisterOutputCoords, RegisterOutputCoordsCuda}) {
    EXPECT_TRUE(add(registry).ok());
  }
  return registry;
}

// The neighbour table of a map, which may be a lookup.
std::vector<int32_t> TableOf(const KernelMap& map, const ExecutionContext& context) {
  const KernelMap table = *context.backend->map_ops().To(MapForm::kNeighbourTable, map, context);
  return *CopyToHost(table.table().table.array(), context);
}

TEST(MappingCudaTest, VariantsAgreeOnManyRows) {
  VOXCONV_NEED_CUDA(cuda);
  const Registry registry = MakeRegistry();
  // Columns of voxels, full along z, and odd strides: what fills tables unevenly.
  for (const auto& [kernel, stride] : {std::pair{Int3{3, 3, 3}, Int3{1, 1, 4}},
                                       {Int3{7, 5, 7}, Int3{3, 1, 2}},
                                       {Int3{2, 2, 2}, Int3{1, 1, 1}}}) {
    const std::vector<Coordinate> rows = RandomVoxels(40000, {0, 2}, -40, 39, stride, 9);
    const ConvGeometry geometry =
        *ConvGeometry::Create({.kernel = kernel, .input_tensor_stride = stride});
    const auto set = *CoordinateSet::Create(rows, stride, cuda->context);
    std::vector<int32_t> expected;
    for (const std::string& spec : registry.mappings().Variants(BackendKind::kCuda)) {
      SCOPED_TRACE(spec);
      const auto mapping = registry.mappings().Create(spec, BackendKind::kCuda);
      ASSERT_TRUE(mapping.ok()) << mapping.status();
      if (!(*mapping)->Supports(geometry).ok) continue;  // the CPU's alone
      const auto index = (*mapping)->BuildIndex(*set, cuda->context);
      ASSERT_TRUE(index.ok()) << index.status();
      const auto map = (*mapping)->Query(**index, {*set, *set, geometry}, cuda->context);
      ASSERT_TRUE(map.ok()) << map.status();
      EXPECT_FALSE(map->counts_known());
      ASSERT_TRUE(map->Validate(cuda->context).ok()) << map->Validate(cuda->context);
      const std::vector<int32_t> table = TableOf(*map, cuda->context);
      if (expected.empty()) expected = table;
      EXPECT_TRUE(table == expected);
    }
    EXPECT_GT(std::count_if(expected.begin(), expected.end(), [](int32_t p) { return p >= 0; }),
              static_cast<int64_t>(rows.size()));
  }
}

std::vector<ConvGeometry> Chain(OutputRule rule, const Int3& kernel, int levels) {
  std::vector<ConvGeometry> chain;
  for (int level = 0, stride = 1; level < levels; ++level, stride *= 2) {
    chain.push_back(*ConvGeometry::Create({.kind = ConvKind::kStrided,
                                           .rule = rule,
                                           .kernel = kernel,
                                           .stride = {2, 2, 2},
                                           .input_tensor_stride = {stride, stride, stride}}));
  }
  return chain;
}

absl::StatusOr<std::vector<CoordinateSetPtr>> RunChain(const OutputCoords& plugin,
                                                       const CoordinateSet& inputs,
                                                       const std::vector<ConvGeometry>& chain,
                                                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<PendingCoordinates> pending,
                           plugin.Begin(inputs, chain, context));
  return OutputCoords::Finish(std::move(pending), context);
}

TEST(MappingCudaTest, ChainsAreTheCpusLevelByLevel) {
  VOXCONV_NEED_CUDA(cuda);
  UnitCpu cpu(1);
  const Registry registry = MakeRegistry();
  // Boxes for a flat bitmap, for one of bricks, for none; of the second chain sizes are guessed
  // high.
  for (int extent : {60, 600, 50000}) {
    const std::vector<Coordinate> rows = RandomVoxels(3000, {0, 3}, -extent, extent, {1, 1, 1}, 5);
    const auto host = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
    const auto device = *CoordinateSet::Create(rows, {1, 1, 1}, cuda->context);
    for (const auto& chain :
         {Chain(OutputRule::kQuantize, {2, 2, 2}, 5), Chain(OutputRule::kDilate, {3, 3, 3}, 4)}) {
      for (const std::string spec : {"fused", "appended", "sort_unique", "staged", "location_table",
                                     "location_table:memory_limit_mib=1"}) {
        SCOPED_TRACE(spec);
        const auto expected = *RunChain(**registry.output_coords().Create(spec, BackendKind::kCpu),
                                        *host, chain, cpu.context);
        const auto sets = RunChain(**registry.output_coords().Create(spec, BackendKind::kCuda),
                                   *device, chain, cuda->context);
        ASSERT_TRUE(sets.ok()) << sets.status();
        ASSERT_EQ(sets->size(), chain.size());
        for (size_t i = 0; i < chain.size(); ++i) {
          const CoordinateSet& set = *(*sets)[i];
          EXPECT_EQ(*CopyToHost(set.rows(), cuda->context),
                    *CopyToHost(expected[i]->rows(), cpu.context));
          EXPECT_EQ(set.bounds(), expected[i]->bounds());
          EXPECT_EQ(set.num_batches(), expected[i]->num_batches());
          EXPECT_EQ(set.tensor_stride(), expected[i]->tensor_stride());
          EXPECT_TRUE(set.sorted());
        }
      }
    }
  }
}

// Begin does not wait. Other work may be queued before Finish, another chain included, and a chain
// may be given up.
TEST(MappingCudaTest, ChainsMayBePendingTogether) {
  VOXCONV_NEED_CUDA(cuda);
  UnitCpu cpu(1);
  const Registry registry = MakeRegistry();
  const auto on_cpu = *registry.output_coords().Create("fused", BackendKind::kCpu);
  const auto on_cuda = *registry.output_coords().Create("fused", BackendKind::kCuda);
  const std::vector<ConvGeometry> chain = Chain(OutputRule::kQuantize, {2, 2, 2}, 3);
  std::vector<CoordinateSetPtr> inputs, expected;
  std::vector<std::unique_ptr<PendingCoordinates>> pending;
  for (uint32_t seed : {1, 2, 3}) {
    const std::vector<Coordinate> rows =
        RandomVoxels(200 * static_cast<int>(seed), {0}, -30, 30, {1, 1, 1}, seed);
    const auto host = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
    expected.push_back(RunChain(*on_cpu, *host, chain, cpu.context)->back());
    inputs.push_back(*CoordinateSet::Create(rows, {1, 1, 1}, cuda->context));
  }
  const int64_t waits = cuda->backend->synchronisations();
  pending.push_back(*on_cuda->Begin(*inputs[0], chain, cuda->context));
  EXPECT_EQ(cuda->backend->synchronisations(), waits);
  for (size_t i : {1, 2}) pending.push_back(*on_cuda->Begin(*inputs[i], chain, cuda->context));
  pending[1].reset();
  for (size_t i : {2, 0}) {
    const auto sets = OutputCoords::Finish(std::move(pending[i]), cuda->context);
    ASSERT_TRUE(sets.ok()) << sets.status();
    EXPECT_EQ(*CopyToHost(sets->back()->rows(), cuda->context),
              *CopyToHost(expected[i]->rows(), cpu.context));
  }
}

TEST(MappingCudaTest, OutputsOutsideTheRangeAreRefusedAsOnTheCpu) {
  VOXCONV_NEED_CUDA(cuda);
  UnitCpu cpu(1);
  const Registry registry = MakeRegistry();
  const std::vector<Coordinate> rows = {{0, 5, 5, 5}, {1, 3, kMinCoordinate, 9}, {2, 0, 0, 0}};
  const ConvGeometry geometry = *ConvGeometry::Create(
      {.kind = ConvKind::kStrided, .rule = OutputRule::kDilate, .kernel = {1, 5, 1}});
  for (const std::string spec : {"fused", "appended", "sort_unique", "staged", "location_table",
                                 "location_table:memory_limit_mib=1"}) {
    const auto on_cpu = *registry.output_coords().Create(spec, BackendKind::kCpu);
    const auto on_cuda = *registry.output_coords().Create(spec, BackendKind::kCuda);
    const auto host = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
    const auto device = *CoordinateSet::Create(rows, {1, 1, 1}, cuda->context);
    const absl::Status expected = on_cpu->Compute(*host, geometry, cpu.context).status();
    EXPECT_EQ(expected.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(on_cuda->Compute(*device, geometry, cuda->context).status(), expected);
  }
}

TEST(MappingCudaTest, WhatCannotBeBuiltIsRefused) {
  VOXCONV_NEED_CUDA(cuda);
  const Registry registry = MakeRegistry();
  const std::vector<Coordinate> far = {{0, 0, 0, 0}, {0, 100000, 100000, 100000}};
  const auto wide = *CoordinateSet::Create(far, {1, 1, 1}, cuda->context);
  for (const std::string spec : {"grid", "grid:storage=bitmap"}) {
    const auto status = (*registry.mappings().Create(spec, BackendKind::kCuda))
                            ->BuildIndex(*wide, cuda->context)
                            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("memory_limit_mib=4096"));
  }
  // Agree modulo m_bar = 2 and r_bar = 1, so that the first try must fail.
  const std::vector<Coordinate> alike = {{0, 0, 0, 0}, {0, 2, 0, 0}};
  const auto set = *CoordinateSet::Create(alike, {1, 1, 1}, cuda->context);
  for (const std::string build : {"host", "device"}) {
    const auto mapping = *registry.mappings().Create("perfect_hash:max_retries=0,build=" + build,
                                                     BackendKind::kCuda);
    const auto status = mapping->BuildIndex(*set, cuda->context).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("sample 0: perfect hash of n = 2 voxels"));
  }
}

}  // namespace
}  // namespace voxconv
