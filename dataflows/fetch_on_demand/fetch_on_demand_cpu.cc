// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/amx_f32_gemm.h"
#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/indirect_gemm.h"
#include "voxconv/backends/cpu/packed_weights.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"
#include "voxconv/dataflows/fetch_on_demand/cpu_plan.h"
#include "voxconv/dataflows/fetch_on_demand/fetch_on_demand.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerClear = 512;  // of a task, before copied products are added

// Multiplies `count` rows of zeros and adds them to one row that nobody reads.
void ComputePadding(IndirectGemmOperands operands, float* padding_row, int32_t k, int64_t count) {
  static constexpr int64_t kChunk = 64;
  static constexpr auto kNone = [] {
    std::array<int32_t, kChunk> none{};
    none.fill(-1);
    return none;
  }();
  static constexpr std::array<int32_t, kChunk> kFirstRow{};
  operands.output = padding_row;
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t rows = std::min(kChunk, count - done);
    IndirectGemm(operands, {&k, 1}, {rows, kNone.data(), rows, kFirstRow.data()},
                 ProductMode::kAccumulate);
  }
}

// What a thread computes a tile of output rows in f32 with.
struct F32Tile {
  IndirectGemmOperands operands;
  int64_t t;           // which tile
  int32_t* in;         // [plan.tile_pairs()]: where inputs are lined up
  int32_t* out;        // [plan.tile_pairs()]: the same of outputs
  float* padding_row;  // [c_out]
};

// Copies the pairs that a launch has in a tile, offset by offset. The products then foresee which
// rows come next, and do not wait for the pairs themselves. Returns their number.
int64_t LineUpPairs(const CpuPlan& plan, const FgmsLaunch& launch, const PairList& pairs,
                    const F32Tile& tile) {
  int64_t count = 0;
  for (const int32_t k : launch.offsets) {
    const int64_t begin = plan.fgms_ptr(k, tile.t), end = plan.fgms_ptr(k, tile.t + 1);
    std::copy(pairs.in.data() + begin, pairs.in.data() + end, tile.in + count);
    std::copy(pairs.out.data() + begin, pairs.out.data() + end, tile.out + count);
    count += end - begin;
  }
  return count;
}

// Asks for the input rows that the first register tile of offset k needs.
void AskForFirstRows(const CpuPlan& plan, const PairList& pairs, const F32Tile& tile, int32_t k) {
  constexpr int64_t kRows = 12;
  const int32_t* in = pairs.in.data();
  const int64_t begin = plan.fgms_ptr(k, tile.t);
  const int64_t end = std::min(begin + kRows, plan.fgms_ptr(k, tile.t + 1));
  for (int64_t i = begin; i < end; ++i) PrefetchInputRow(tile.operands, in[i]);
}

// All offsets of one launch, one after another, on one tile of output rows. The offsets' padding is
// spread evenly over the tiles.
void ComputeTile(const CpuPlan& plan, const FgmsLaunch& launch, const PairList& pairs,
                 const F32Tile& tile) {
  const bool overwrites = plan.overwrites() && &launch == &plan.launches().front();
  const bool lines_up = plan.tile_pairs() > 0 && launch.offsets.size() > 1;
  const int64_t t = tile.t;
  IndirectGemmRows rows{.in = tile.in, .out = tile.out};
  if (lines_up) rows.following = LineUpPairs(plan, launch, pairs, tile);
  for (size_t j = 0; j < launch.offsets.size(); ++j) {
    const int32_t k = launch.offsets[j];
    const int64_t begin = plan.fgms_ptr(k, t);
    if (lines_up) {
      rows.in += rows.count;
      rows.out += rows.count;
    } else {
      rows.in = pairs.in.data() + begin;
      rows.out = pairs.out.data() + begin;
      if (j + 1 < launch.offsets.size()) AskForFirstRows(plan, pairs, tile, launch.offsets[j + 1]);
    }
    rows.count = plan.fgms_ptr(k, t + 1) - begin;
    if (lines_up) rows.following -= rows.count;
    IndirectGemm(tile.operands, {&k, 1}, rows,
                 overwrites && j == 0 ? ProductMode::kOverwrite : ProductMode::kAccumulate);
    const int64_t padding =
        launch.padded_rows[j] - (plan.fgms_ptr(k, plan.tiles()) - plan.fgms_ptr(k, 0));
    if (padding > 0) {
      const int64_t here = padding * (t + 1) / plan.tiles() - padding * t / plan.tiles();
      ComputePadding(tile.operands, tile.padding_row, k, here);
    }
  }
}

// One tile of output rows in bf16.
struct Bf16Tile {
  Bf16SumOperands operands;  // of all matrices
  int64_t begin, end;        // rows
  uint16_t* gathered;        // memory for AddAmxProducts
};

// Calls add(operands, pairs, mode) for all offsets on a tile, one after the other.
template <typename Add>
void ForOffsets(const CpuPlan& plan, const KernelMap& map, const Bf16Tile& tile, const Add& add) {
  Bf16SumOperands operands = tile.operands;
  const int64_t matrix_size = PackedBf16WeightSize(operands.c_in, operands.c_out);
  ProductMode mode = plan.overwrites() ? ProductMode::kOverwrite : ProductMode::kAccumulate;
  const int64_t t = tile.begin / plan.tile();
  const auto inputs = [&](int32_t k) {
    const int64_t first = plan.fgms_ptr(k, t);
    return absl::MakeConstSpan(map.pairs().in).subspan(first, plan.fgms_ptr(k, t + 1) - first);
  };
  for (const FgmsLaunch& launch : plan.launches()) {
    const auto& offsets = launch.offsets;
    for (size_t j = 0; j < offsets.size(); ++j) {
      const absl::Span<const int32_t> in = inputs(offsets[j]);
      Bf16Pairs pairs{.count = static_cast<int64_t>(in.size()), .in = in.data()};
      pairs.out = map.pairs().out.data() + plan.fgms_ptr(offsets[j], t);
      pairs.first_out = tile.begin;
      if (j + 1 < offsets.size()) pairs.next_in = inputs(offsets[j + 1]);
      operands.packed_weights = tile.operands.packed_weights + offsets[j] * matrix_size;
      add(operands, pairs, mode);
      mode = ProductMode::kAccumulate;
    }
  }
}

// The sums stay in f32 until all offsets are added. Without AMX one panel of columns comes after
// the other: its weights stay in the first-level cache, and the rows in the second.
void ComputeBf16Tile(const CpuPlan& plan, const KernelMap& map, const Bf16Tile& tile,
                     uint16_t* output) {
  const Bf16SumOperands& operands = tile.operands;
  const int64_t rows = tile.end - tile.begin;
  if (!plan.overwrites()) {
    std::fill_n(operands.sums, rows * Bf16SumWidth(operands.c_out), 0.0f);
  }
  if (plan.products() == CpuProducts::kBf16Amx) {
    ForOffsets(plan, map, tile, [&](const auto& matrix, const Bf16Pairs& pairs, ProductMode mode) {
      AddAmxProducts(matrix, pairs, mode, tile.gathered);
    });
  } else {
    for (int64_t panel = 0; panel < Bf16Panels(operands.c_out); ++panel) {
      ForOffsets(plan, map, tile,
                 [&](const auto& matrix, const Bf16Pairs& pairs, ProductMode mode) {
                   AddBf16Products(matrix, pairs, panel, mode);
                 });
    }
  }
  RoundBf16Sums(operands.sums, rows, operands.c_out, output + tile.begin * operands.c_out);
}

void RunBf16(const CpuPlan& plan, const KernelMap& map, const ForwardArgs& args,
             const Workspace& workspace, const ExecutionContext& context) {
  const ConvShape& shape = plan.shape();
  const void* panels = nullptr;
  if (args.prepared_weights != nullptr) {
    panels = args.prepared_weights->data();
  } else {
    const StageScope stage(context, Stage::kConvert);
    void* own = workspace.Get<void>(plan.weights_slot());
    PackedWeights::Pack(shape, args.weights, own, context);
    panels = own;
  }
  const StageScope stage(context, Stage::kFused);
  auto* sums = workspace.Get<float>(plan.sums_slot());
  auto* gathered = plan.products() == CpuProducts::kBf16Amx
                       ? workspace.Get<uint16_t>(plan.gathered_slot())
                       : nullptr;
  ParallelRangesByThread(
      context, map.num_outputs(), plan.tile(), [&](int64_t begin, int64_t end, int thread) {
        Bf16Tile tile{.begin = begin, .end = end};
        tile.operands = {.input = static_cast<const uint16_t*>(args.input.data),
                         .packed_weights = static_cast<const uint16_t*>(panels),
                         .sums = sums + thread * plan.sums_size(),
                         .c_in = shape.c_in,
                         .c_out = shape.c_out};
        if (plan.products() == CpuProducts::kBf16Amx)
          tile.gathered = gathered + thread * AmxScratchSize(shape.c_in);
        ComputeBf16Tile(plan, map, tile, static_cast<uint16_t*>(args.output.data));
      });
}

// What a tile of output rows multiplies, in the order of the offsets.
std::vector<AmxF32Pairs> ProductsOfTile(const CpuPlan& plan, const PairList& pairs, int64_t t) {
  std::vector<AmxF32Pairs> products;
  for (const FgmsLaunch& launch : plan.launches()) {
    for (const int32_t k : launch.offsets) {
      const int64_t begin = plan.fgms_ptr(k, t);
      products.push_back({.matrix = k,
                          .count = plan.fgms_ptr(k, t + 1) - begin,
                          .in = pairs.in.data() + begin,
                          .out = pairs.out.data() + begin,
                          .overwrite = plan.overwrites() && products.empty()});
    }
  }
  return products;
}

// f32 by products of three parts. Returns false, and does nothing, if weights have no such parts.
bool RunParts(const CpuPlan& plan, const KernelMap& map, const ForwardArgs& args,
              const Workspace& workspace, const ExecutionContext& context) {
  const ConvShape& shape = plan.shape();
  const void* parts = nullptr;
  if (args.prepared_weights != nullptr) {
    parts = args.prepared_weights->data();
  } else {
    const StageScope stage(context, Stage::kConvert);
    void* own = workspace.Get<void>(plan.weights_slot());
    if (!PackedWeights::PackParts(shape, args.weights, own, context)) return false;
    parts = own;
  }
  const StageScope stage(context, Stage::kFused);
  const AmxF32Operands operands{args.input.f32(), static_cast<const uint16_t*>(parts),
                                args.output.f32(), shape.c_in, shape.c_out};
  char* scratch = workspace.Get<char>(plan.parts_slot());
  const auto compute = [&](int64_t begin, int64_t end, int thread) {
    if (!plan.overwrites()) {
      std::fill(operands.output + begin * shape.c_out, operands.output + end * shape.c_out, 0.0f);
    }
    AddAmxF32Products(operands, ProductsOfTile(plan, map.pairs(), begin / plan.tile()),
                      scratch + thread * AmxF32ScratchBytes(shape.c_in));
  };
  ParallelRangesByThread(context, map.num_outputs(), plan.tile(), compute);
  return true;
}

void RunCopies(const CopyPlan& plan, const KernelMap& map, const ForwardArgs& args,
               const Workspace& workspace, const ExecutionContext& context) {
  const StageScope stage(context, Stage::kFused);
  const int64_t c_out = plan.shape().c_out;
  float* output = args.output.f32();
  ParallelRanges(context, map.num_outputs(), kRowsPerClear, [&](int64_t begin, int64_t end) {
    std::fill(output + begin * c_out, output + end * c_out, 0.0f);
  });
  AddCopiedProductsCpu(map,
                       {.input = args.input.data,
                        .weights = args.weights.data,
                        .sum = output,
                        .rows = workspace.Get<float>(plan.rows_slot()),
                        .products = workspace.Get<float>(plan.products_slot()),
                        .c_in = plan.shape().c_in,
                        .c_out = c_out},
                       context);
}

class FetchOnDemandCpu final : public FetchOnDemand {
 public:
  using FetchOnDemand::FetchOnDemand;

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    if (shape.types != ConvTypes::Of(Precision::kBF16)) {
      return {.support = F32Only(kFetchOnDemandName, shape)};
    }
    // Launches that follow each other, and copies, add to the output itself, which would round.
    Capability bf16{.flushes_denormals = true, .forward_only = true};
    const std::string& name = options().GetEnum("fusion");
    bf16.support = fusion() == FgmsFusion::kSegmented
                       ? Support::Yes()
                       : Support::No(absl::StrCat(kFetchOnDemandName, ": fusion=", name,
                                                  " in bf16; allowed on the CPU is segmented"));
    return bf16;
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass, const PreparedMap& prepared, const ConvShape& shape,
      const ExecutionContext& context) const override {
    const KernelMap& map = prepared.map();
    if (Copies(map, shape)) return std::make_unique<CopyPlan>(map, shape, /*counts_launches=*/true);
    const CpuPlanRule rule{.products = CpuProductsOf(options(), shape),
                           .most_rows = options().GetInt("tile"),
                           .threads = AsCpu(context).threads()};
    try {
      return std::make_unique<CpuPlan>(ScheduleFgms(fusion(), map.offset_ptr()), rule, map, shape);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kFetchOnDemandName, ": out of memory to plan ", map.num_offsets(), " offsets and ",
          map.num_outputs(), " outputs; tile=", rule.most_rows, " could be larger"));
    }
  }

  absl::StatusOr<std::unique_ptr<PreparedWeights>> DoPrepareWeights(
      const ConvShape& shape, const ConstTensorView& weights,
      const ExecutionContext& context) const override {
    if (CpuProductsOf(options(), shape) == CpuProducts::kParts) {
      return PackedWeights::CreateParts(shape, weights, context);
    }
    return PackedWeights::Create(shape, weights, context);
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const KernelMap& map = prepared.map();
    if (const auto* copies = dynamic_cast<const CopyPlan*>(&base_plan)) {
      RunCopies(*copies, map, args, workspace, context);
      return absl::OkStatus();
    }
    const auto& plan = static_cast<const CpuPlan&>(base_plan);
    if (plan.shape().types.precision == Precision::kBF16) {
      RunBf16(plan, map, args, workspace, context);
      return absl::OkStatus();
    }
    if (plan.products() == CpuProducts::kParts && RunParts(plan, map, args, workspace, context)) {
      return absl::OkStatus();
    }
    const int64_t c_in = plan.shape().c_in;
    const int64_t c_out = plan.shape().c_out;
    float* zero_row = workspace.Get<float>(plan.zero_row_slot());
    float* padding = workspace.Get<float>(plan.padding_slot());
    float* output = args.output.f32();
    const float* packed = nullptr;
    {
      const StageScope stage(context, Stage::kConvert);
      if (args.prepared_weights != nullptr &&
          args.prepared_weights->layout() == PackedWeights::kLayout) {
        packed = static_cast<const float*>(args.prepared_weights->data());
      } else {
        float* own = workspace.Get<float>(plan.weights_slot());
        PackWeights(args.weights.f32(), map.num_offsets(), c_in, c_out, own, context);
        packed = own;
      }
      std::fill_n(zero_row, c_in, 0.0f);
    }
    const StageScope stage(context, Stage::kFused);
    const IndirectGemmOperands operands{args.input.f32(), zero_row, packed, output, c_in, c_out};
    const auto clear_rows = [&](int64_t begin, int64_t end) {
      std::fill(output + begin * c_out, output + end * c_out, 0.0f);
    };
    if (plan.launches().empty()) {
      ParallelRanges(context, map.num_outputs(), plan.tile(), clear_rows);
    }
    auto* lined_up = workspace.Get<int32_t>(plan.pairs_slot());
    for (const FgmsLaunch& launch : plan.launches()) {
      const bool first = &launch == &plan.launches().front();
      const auto compute = [&](int64_t begin, int64_t end, int thread) {
        F32Tile tile{.operands = operands, .t = begin / plan.tile()};
        tile.in = lined_up + thread * 2 * plan.tile_pairs();
        tile.out = tile.in + plan.tile_pairs();
        tile.padding_row = padding + tile.t * c_out;
        if (first && !plan.overwrites()) clear_rows(begin, end);
        ComputeTile(plan, launch, map.pairs(), tile);
      };
      ParallelRangesByThread(context, map.num_outputs(), plan.tile(), compute);
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RegisterFetchOnDemand(Registry& registry) {
  return registry.dataflows().Register(DescribeFetchOnDemand(), BackendKind::kCpu,
                                       &MakeFetchOnDemand<FetchOnDemandCpu>);
}

}  // namespace voxconv
