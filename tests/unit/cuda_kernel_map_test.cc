// Conversions on CUDA of maps as mappings make them there, tables of unknown counts, against the
// CPU's. `voxconv verify --filter layout/` starts from counted pairs.
#include <numeric>
#include <random>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/kernel_map.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"

namespace voxconv {
namespace {

constexpr LayoutRequest kTable{MapLayout::kNeighbourTable};

struct Case {
  int64_t inputs, outputs;
  int offsets;
  bool masks;  // the by-product
};

// Offset k pairs output q with input q + 7 k around a circle, for about a third of them.
std::vector<int32_t> MakeTable(const Case& c) {
  std::mt19937 random(c.offsets);
  std::vector<int32_t> table(c.outputs * c.offsets, -1);
  for (int64_t q = 0; q < c.outputs; ++q) {
    for (int k = 0; k < c.offsets; ++k) {
      if (random() % 3 == 0 && q < c.inputs) {
        table[q * c.offsets + k] = static_cast<int32_t>((q + 7 * k) % c.inputs);
      }
    }
  }
  return table;
}

KernelMap Upload(const Case& c, bool masks, const ExecutionContext& context) {
  const std::vector<int32_t> host = MakeTable(c);
  NeighbourTable table{.table = *CopyToBackend<int32_t>(host, context), .masks = {}};
  if (masks) {
    const int words = (c.offsets + 31) / 32;
    std::vector<uint32_t> bits(c.outputs * words, 0);
    for (int64_t q = 0; q < c.outputs; ++q) {
      for (int k = 0; k < c.offsets; ++k) {
        if (host[q * c.offsets + k] >= 0) bits[q * words + k / 32] |= 1u << k % 32;
      }
    }
    table.masks = *CopyToBackend<uint32_t>(bits, context);
  }
  return KernelMap(c.inputs, c.outputs, c.offsets, kTable, std::move(table));
}

// Every array of a map, in a form to compare.
class Dumper {
 public:
  Dumper(const KernelMap& map, const ExecutionContext& context) : map_(map), context_(context) {}
  std::vector<std::vector<int64_t>> Run() {
    arrays_.push_back(map_.offset_ptr());
    std::visit(*this, map_.storage());
    return std::move(arrays_);
  }
  void operator()(const PairList& l) { Put(l.in), Put(l.out); }
  void operator()(const NeighbourTable& l) { Put(l.table.array()); }  // masks: see Validate
  void operator()(const DenseTables& l) { Put(l.in_table), Put(l.out_table); }
  void operator()(const CodedCsr& l) {
    Put(l.in_ptr), Put(l.out_ptr), Put(l.in_code), Put(l.out_code);
  }
  void operator()(const MaskSorted& l) {
    Put(l.table.array()), Put(l.masks.array());
    if (l.row_order.size() > 0) return Put(l.row_order);
    arrays_.emplace_back(map_.num_outputs());  // as given
    std::iota(arrays_.back().begin(), arrays_.back().end(), 0);
  }

 private:
  template <typename T>
  void Put(const Array<T>& array) {
    const std::vector<T> host = *CopyToHost(array, context_);
    arrays_.emplace_back(host.begin(), host.end());
  }
  const KernelMap& map_;
  const ExecutionContext& context_;
  std::vector<std::vector<int64_t>> arrays_;
};

void CheckAgainstCpu(const Case& c, const LayoutRequest& request, const ExecutionContext& cpu,
                     const ExecutionContext& cuda) {
  SCOPED_TRACE(testing::Message() << c.inputs << " to " << c.outputs << " rows, " << c.offsets
                                  << " offsets to " << ToString(request.layout) << " "
                                  << ToString(request.mask_order) << " " << request.splits);
  const KernelMap source = Upload(c, c.masks, cuda), expected_source = Upload(c, false, cpu);
  // Before anything is counted: from table to table.
  const KernelMap uncounted = *cuda.backend->TransposeKernelMap(source, cuda);
  EXPECT_EQ(uncounted.layout(), kTable);
  EXPECT_TRUE(uncounted.Validate(cuda).ok());
  EXPECT_EQ(Dumper(*cuda.backend->ConvertKernelMap(uncounted, {}, cuda), cuda).Run(),
            Dumper(*cpu.backend->TransposeKernelMap(expected_source, cpu), cpu).Run());
  auto map = cuda.backend->ConvertKernelMap(source, request, cuda);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->counts_known(), request.layout != MapLayout::kNeighbourTable &&
                                     request.layout != MapLayout::kMaskSorted);
  const absl::Status valid = map->Validate(cuda);
  ASSERT_TRUE(valid.ok()) << valid;
  KernelMap expected = *cpu.backend->ConvertKernelMap(expected_source, request, cpu);
  EXPECT_EQ(Dumper(*map, cuda).Run(), Dumper(expected, cpu).Run());

  // From there on to all other layouts: the way through pairs.
  const KernelMap pairs = *cuda.backend->ConvertKernelMap(*map, {}, cuda);
  EXPECT_EQ(Dumper(pairs, cuda).Run(),
            Dumper(*cpu.backend->ConvertKernelMap(expected_source, {}, cpu), cpu).Run());
  const KernelMap back = *cuda.backend->ConvertKernelMap(*map, kTable, cuda);
  ASSERT_TRUE(back.Validate(cuda).ok());
  EXPECT_EQ(Dumper(back, cuda).Run(), Dumper(expected_source, cpu).Run());
  const KernelMap transposed = *cuda.backend->TransposeKernelMap(*map, cuda);
  EXPECT_EQ(Dumper(transposed, cuda).Run(),
            Dumper(*cpu.backend->TransposeKernelMap(expected_source, cpu), cpu).Run());
}

TEST(CudaKernelMapTest, ConvertsAsTheCpuDoes) {
  VOXCONV_NEED_CUDA(unit);
  const auto backend = *CpuBackend::Create({.threads = 1});
  const ExecutionContext cpu{backend.get(), &backend->main_stream(), nullptr};
  const Case cases[] = {{1, 1, 1, false},       {1000, 1000, 27, true},  {700, 1000, 27, false},
                        {1000, 333, 33, true},  {64, 65, 125, false},    {500, 500, 65, false},
                        {500, 500, 70, true},   {70000, 70000, 3, true}, {0, 5, 8, false},
                        {5, 0, 8, true},        {9000, 9001, 27, false}, {3000, 2999, 32, true},
                        {2500, 2500, 40, false}};
  for (const Case& c : cases) {
    for (const LayoutRequest& request :
         {LayoutRequest{MapLayout::kPairs}, kTable, LayoutRequest{MapLayout::kDenseTables},
          LayoutRequest{MapLayout::kCodedCsr}, LayoutRequest{MapLayout::kMaskSorted},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kMask},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kGray},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kGray, 3},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kRarest},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kRarest, 2},
          LayoutRequest{MapLayout::kMaskSorted, MaskOrder::kRarest, 3}}) {
      if (request.splits <= c.offsets) CheckAgainstCpu(c, request, cpu, unit->context);
    }
  }
}

// More offsets than what is known of each finds room for in shared memory.
TEST(CudaKernelMapTest, OrdersRowsOfTheLargestKernels) {
  VOXCONV_NEED_CUDA(unit);
  const auto backend = *CpuBackend::Create({.threads = 1});
  const ExecutionContext cpu{backend.get(), &backend->main_stream(), nullptr};
  CheckAgainstCpu({50, 60, 29791, true}, {MapLayout::kMaskSorted, MaskOrder::kRarest}, cpu,
                  unit->context);
}

TEST(CudaKernelMapTest, RefusesSplits) {
  VOXCONV_NEED_CUDA(unit);
  const KernelMap map = Upload({5, 5, 3, false}, false, unit->context);
  EXPECT_EQ(
      unit->backend
          ->ConvertKernelMap(map, {MapLayout::kMaskSorted, MaskOrder::kGray, 4}, unit->context)
          .status()
          .message(),
      "splits 4: allowed are 1..3");
}

}  // namespace
}  // namespace voxconv
