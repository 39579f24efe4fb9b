// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/indirect_gemm.h"
#include "voxconv/backends/cpu/packed_weights.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/integer.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"
#include "voxconv/dataflows/fetch_on_demand/fetch_on_demand.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {
namespace {

constexpr int64_t kPairBytes = 2 * sizeof(int32_t);
constexpr int64_t kRowsPerClear = 512;  // of a task, before copied products are added

bool UsesAmx(const ConvShape& shape) {
  return shape.types.precision == Precision::kBF16 && TakesAmxProducts(shape.c_in) &&
         HasAmxProducts();
}

// Whether a tile's pairs are lined up (LineUpPairs). Rows of narrower layers cost less than that.
bool LinesUpPairs(const ConvShape& shape) {
  constexpr int64_t kNarrow = 32;
  return shape.types.precision != Precision::kBF16 && shape.c_in > kNarrow;
}

// Rows of a tile: `most`, or fewer where threads would be idle or sums in f32 would not stay in the
// cache. What a row holds does not depend on it.
int64_t TileRows(int64_t most, const KernelMap& map, const ConvShape& shape, int threads) {
  constexpr int64_t kTilesPerThread = 8;
  constexpr int64_t kLeast = 512;
  constexpr int64_t kMostSums = 1 << 18;
  if (UsesAmx(shape)) {
    most = std::min(most, std::max(kLeast, kMostSums / Bf16SumWidth(shape.c_out)));
  } else if (shape.types.precision == Precision::kBF16) {
    return std::min(most, kLeast);
  }
  // Wide layers have large weights, which all rows of a tile should share.
  constexpr int64_t kWide = 64;
  constexpr int64_t kRowsOfMiddleLayers = 1024;
  if (LinesUpPairs(shape) && shape.c_in <= kWide && shape.c_out <= kWide) {
    most = std::min(most, kRowsOfMiddleLayers);
  }
  const int64_t share = CeilDiv(map.num_outputs(), kTilesPerThread * threads);
  return std::min(most, std::max(kLeast, share));
}

// Cuts the outputs into tiles of `tile` rows and finds every tile's segment of every offset.
// O(K N_out / tile * log(pairs)).
class CpuPlan final : public DataflowPlan {
 public:
  CpuPlan(std::vector<FgmsLaunch> launches, int64_t tile, const KernelMap& map,
          const ConvShape& shape, int threads)
      : launches_(std::move(launches)), tile_(tile), tiles_((map.num_outputs() + tile - 1) / tile) {
    PutIdentityFirst(map.identity_offset());
    FindSegments(map);
    Count(map, shape);
    weights_slot_ = booking_.Book(PackedWeights::Bytes(shape));
    const bool bf16 = shape.types.precision == Precision::kBF16;
    if (bf16) {
      sums_size_ = std::min(tile, map.num_outputs()) * Bf16SumWidth(shape.c_out);
      sums_slot_ = booking_.Book<float>(threads * sums_size_);
      amx_ = UsesAmx(shape);
      if (amx_) gathered_slot_ = booking_.Book<uint16_t>(threads * AmxScratchSize(shape.c_in));
    } else {
      zero_row_slot_ = booking_.Book<float>(shape.c_in);
      const bool pads = work_.padded_pairs > work_.true_pairs;
      padding_slot_ = booking_.Book<float>(pads ? tiles_ * shape.c_out : 0);
      if (LinesUpPairs(shape)) tile_pairs_ = MostPairs();
      pairs_slot_ = booking_.Book<int32_t>(threads * 2 * tile_pairs_);
    }
    kernel_ = absl::StrCat("products of ", tile, " rows, ",
                           amx_ ? "AMX" : (bf16 ? Bf16Target() : SgemmTarget()));
    weights_layout_ = PackedWeights::kLayout;
  }

  const std::vector<FgmsLaunch>& launches() const { return launches_; }
  // Whether the first offset of the first launch has a pair in every row of the output.
  bool overwrites() const { return overwrites_; }
  int64_t tile() const { return tile_; }
  int64_t tiles() const { return tiles_; }
  // First pair of offset k whose output is in tile t or behind it; t = tiles() ends the offset.
  int64_t fgms_ptr(int64_t k, int64_t t) const { return fgms_ptr_[k * (tiles_ + 1) + t]; }

  int weights_slot() const { return weights_slot_; }
  int zero_row_slot() const { return zero_row_slot_; }
  int padding_slot() const { return padding_slot_; }  // [tiles, c_out]: where padding is added
  // [threads, 2, tile_pairs()]: inputs and outputs of the pairs that a launch has in a tile, where
  // they are lined up. Otherwise tile_pairs() is 0.
  int pairs_slot() const { return pairs_slot_; }
  int64_t tile_pairs() const { return tile_pairs_; }
  // bf16: [threads, sums_size()], the sums of the tile that a thread computes.
  int sums_slot() const { return sums_slot_; }
  int64_t sums_size() const { return sums_size_; }
  bool amx() const { return amx_; }  // whether bf16 is multiplied by AMX
  // With AMX: [threads, AmxScratchSize(c_in)].
  int gathered_slot() const { return gathered_slot_; }

 private:
  // The identity offset has a pair in every row. Where it comes first, nothing need be cleared.
  void PutIdentityFirst(int32_t identity) {
    for (auto launch = launches_.begin(); launch != launches_.end(); ++launch) {
      auto& offsets = launch->offsets;
      const auto found = std::find(offsets.begin(), offsets.end(), identity);
      if (found == offsets.end()) continue;
      const auto padded = launch->padded_rows.begin() + (found - offsets.begin());
      std::rotate(launch->padded_rows.begin(), padded, padded + 1);
      std::rotate(offsets.begin(), found, found + 1);
      std::rotate(launches_.begin(), launch, launch + 1);
      overwrites_ = true;
      return;
    }
  }

  // PCEngine's FGMS_ptr, refined from offsets to tiles of an offset: pairs ascend by output row.
  void FindSegments(const KernelMap& map) {
    const int32_t* out = map.pairs().out.data();
    fgms_ptr_.resize(map.num_offsets() * (tiles_ + 1));
    for (int64_t k = 0; k < map.num_offsets(); ++k) {
      const int32_t* end = out + map.offset_ptr()[k + 1];
      const int32_t* at = out + map.offset_ptr()[k];
      for (int64_t t = 0; t <= tiles_; ++t) {
        // A row has one pair at most.
        at = std::lower_bound(at, at + std::min<int64_t>(end - at, tile_), t * tile_);
        fgms_ptr_[k * (tiles_ + 1) + t] = at - out;
      }
    }
  }

  // The most pairs that a launch has in a tile.
  int64_t MostPairs() const {
    int64_t most = 0;
    for (const FgmsLaunch& launch : launches_) {
      for (int64_t t = 0; t < tiles_; ++t) {
        int64_t here = 0;
        for (const int32_t k : launch.offsets) here += fgms_ptr(k, t + 1) - fgms_ptr(k, t);
        most = std::max(most, here);
      }
    }
    return most;
  }

  // Inputs are read once a pair, weights once a tile and offset that meet; a tile of the output
  // stays in cache within a launch and comes back for the next.
  void Count(const KernelMap& map, const ConvShape& shape) {
    const int64_t element = SizeOf(shape.types.input);
    const int64_t matrix_bytes = shape.c_in * shape.c_out * element;
    const int64_t output_bytes = map.num_outputs() * shape.c_out * element;
    const int64_t packed_bytes =
        PackedWeights::Bytes(shape) / std::max<int64_t>(map.num_offsets(), 1);
    int64_t segments = 0;
    for (int64_t k = 0; k < map.num_offsets(); ++k) {
      for (int64_t t = 0; t < tiles_; ++t) segments += fgms_ptr(k, t) < fgms_ptr(k, t + 1);
    }
    const int64_t launches = static_cast<int64_t>(launches_.size());
    work_.launches = launches;
    work_.true_pairs = map.num_pairs();
    for (const FgmsLaunch& launch : launches_) {
      for (int64_t rows : launch.padded_rows) work_.padded_pairs += rows;
    }
    work_.bytes_read = map.num_offsets() * matrix_bytes +
                       map.num_pairs() * (shape.c_in * element + kPairBytes) +
                       segments * packed_bytes + std::max<int64_t>(launches - 1, 0) * output_bytes;
    work_.bytes_written =
        map.num_offsets() * packed_bytes + std::max<int64_t>(launches, 1) * output_bytes;
  }

  std::vector<FgmsLaunch> launches_;
  bool overwrites_ = false;
  int64_t tile_;
  int64_t tiles_;
  std::vector<int64_t> fgms_ptr_;  // [K, tiles + 1]
  int weights_slot_ = 0;
  int zero_row_slot_ = 0;
  int padding_slot_ = 0;
  int pairs_slot_ = 0;
  int64_t tile_pairs_ = 0;
  int sums_slot_ = 0;
  int64_t sums_size_ = 0;
  bool amx_ = false;
  int gathered_slot_ = 0;
};

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
  if (plan.amx()) {
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
  auto* gathered = plan.amx() ? workspace.Get<uint16_t>(plan.gathered_slot()) : nullptr;
  ParallelRangesByThread(
      context, map.num_outputs(), plan.tile(), [&](int64_t begin, int64_t end, int thread) {
        Bf16Tile tile{.begin = begin, .end = end};
        tile.operands = {.input = static_cast<const uint16_t*>(args.input.data),
                         .packed_weights = static_cast<const uint16_t*>(panels),
                         .sums = sums + thread * plan.sums_size(),
                         .c_in = shape.c_in,
                         .c_out = shape.c_out};
        if (plan.amx()) tile.gathered = gathered + thread * AmxScratchSize(shape.c_in);
        ComputeBf16Tile(plan, map, tile, static_cast<uint16_t*>(args.output.data));
      });
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
    const int threads = AsCpu(context).threads();
    const int64_t tile = TileRows(options().GetInt("tile"), map, shape, threads);
    try {
      return std::make_unique<CpuPlan>(ScheduleFgms(fusion(), map.offset_ptr()), tile, map, shape,
                                       threads);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kFetchOnDemandName, ": out of memory to plan ", map.num_offsets(), " offsets and ",
          map.num_outputs(), " outputs; tile=", tile, " could be larger"));
    }
  }

  absl::StatusOr<std::unique_ptr<PreparedWeights>> DoPrepareWeights(
      const ConvShape& shape, const ConstTensorView& weights,
      const ExecutionContext& context) const override {
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
    const int64_t c_in = plan.shape().c_in;
    const int64_t c_out = plan.shape().c_out;
    float* zero_row = workspace.Get<float>(plan.zero_row_slot());
    float* padding = workspace.Get<float>(plan.padding_slot());
    float* output = args.output.f32();
    const float* packed = nullptr;
    {
      const StageScope stage(context, Stage::kConvert);
      if (args.prepared_weights != nullptr) {
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
