// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/indirect_gemm.h"
#include "voxconv/backends/cpu/packed_weights.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/integer.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

constexpr int64_t kIndexBytes = sizeof(int32_t);
// Rows of a tile where the option leaves them to the backend: those of the micro-kernel.
constexpr int64_t kDefaultTile = 6;
// Rows a task computes, in tiles.
constexpr int64_t kRowsPerTask = 512;
// Rows a call of the micro-kernel computes, where tiles share their offsets.
constexpr int64_t kRowsPerCall = 48;

// Cuts each split's row order into tiles of `tile` rows and finds the offsets that any row of a
// tile has. O(splits * N_out * words).
class CpuPlan final : public DataflowPlan {
 public:
  CpuPlan(int64_t tile, const KernelMap& map, const MaskSortedArrays& layout,
          const ConvShape& shape)
      : tile_(tile), tiles_(CeilDiv(map.num_outputs(), tile)), splits_(layout.splits()) {
    FindSteps(map.num_outputs(), layout);
    Count(map, shape);
    weights_slot_ = booking_.Book(PackedWeights::Bytes(shape));
    zero_row_slot_ = booking_.Book<float>(shape.c_in);
    partial_slot_ = booking_.Book<float>((splits_ - 1) * map.num_outputs() * shape.c_out);
    const bool bf16 = shape.types.precision == Precision::kBF16;
    kernel_ = absl::StrCat("products of ", tile, " rows, ", bf16 ? Bf16Target() : SgemmTarget());
    weights_layout_ = PackedWeights::kLayout;
  }

  int64_t tile() const { return tile_; }
  int64_t splits() const { return splits_; }
  // The offsets that tile t of a split multiplies, ascending.
  absl::Span<const int32_t> steps(int64_t split, int64_t t) const {
    const int64_t* at = &step_ptr_[split * tiles_ + t];
    return absl::MakeConstSpan(steps_).subspan(at[0], at[1] - at[0]);
  }

  int weights_slot() const { return weights_slot_; }
  int zero_row_slot() const { return zero_row_slot_; }
  // [splits - 1, N_out, c_out]: the sums of all splits but the first.
  int partial_slot() const { return partial_slot_; }

 private:
  void FindSteps(int64_t rows, const MaskSortedArrays& layout) {
    const int64_t words = layout.words;
    std::vector<uint32_t> any(words);
    step_ptr_.reserve(splits_ * tiles_ + 1);
    step_ptr_.push_back(0);
    for (int64_t split = 0; split < splits_; ++split) {
      const uint32_t* masks = layout.masks.data() + split * rows * words;
      const int32_t* order = layout.row_order.data() + split * rows;
      for (int64_t t = 0; t < tiles_; ++t) {
        std::fill(any.begin(), any.end(), 0u);
        const int64_t end = std::min(rows, (t + 1) * tile_);
        for (int64_t i = t * tile_; i < end; ++i) {
          for (int64_t w = 0; w < words; ++w) any[w] |= masks[order[i] * words + w];
        }
        AddSteps(any, layout.split_ptr[split]);
        const int64_t count = static_cast<int64_t>(steps_.size()) - step_ptr_.back();
        work_.padded_pairs += (end - t * tile_) * count;
        step_ptr_.push_back(static_cast<int64_t>(steps_.size()));
      }
    }
  }

  void AddSteps(absl::Span<const uint32_t> mask, int32_t first_offset) {
    for (size_t w = 0; w < mask.size(); ++w) {
      for (uint32_t bits = mask[w]; bits != 0; bits &= bits - 1) {
        steps_.push_back(first_offset + static_cast<int32_t>(w) * 32 + absl::countr_zero(bits));
      }
    }
  }

  // Table entries are read once a row and step, inputs once a pair, weights once a tile and step;
  // partial sums are written once and read once.
  void Count(const KernelMap& map, const ConvShape& shape) {
    const int64_t element = SizeOf(shape.types.input);
    const int64_t packed = element == 2 ? PackedBf16WeightSize(shape.c_in, shape.c_out)
                                        : PackedWeightSize(shape.c_in, shape.c_out);
    const int64_t matrix_bytes = shape.c_in * shape.c_out * element;
    const int64_t packed_bytes = packed * element;
    const int64_t output_bytes = map.num_outputs() * shape.c_out * element;
    const bool reduces = splits_ > 1;
    work_.true_pairs = map.num_pairs();
    work_.launches = splits_ + (reduces ? 1 : 0);
    work_.bytes_read =
        map.num_offsets() * matrix_bytes + work_.padded_pairs * kIndexBytes +
        splits_ * map.num_outputs() * kIndexBytes + map.num_pairs() * shape.c_in * element +
        static_cast<int64_t>(steps_.size()) * packed_bytes + (reduces ? splits_ * output_bytes : 0);
    work_.bytes_written =
        map.num_offsets() * packed_bytes + (splits_ + (reduces ? 1 : 0)) * output_bytes;
  }

  int64_t tile_;
  int64_t tiles_;
  int64_t splits_;
  std::vector<int64_t> step_ptr_;  // [splits * tiles + 1]
  std::vector<int32_t> steps_;
  int weights_slot_ = 0;
  int zero_row_slot_ = 0;
  int partial_slot_ = 0;
};

// The input rows of one tile under each of its steps.
struct TileInputs {
  absl::Span<const int32_t> steps;
  int64_t count = 0;
  std::vector<int32_t> in;  // [steps, count]
};

// Products of one dtype on rows that lie anywhere.
struct FloatProducts {
  IndirectGemmOperands operands;

  void Prefetch(int64_t row) const { PrefetchInputRow(operands, row); }
  void Run(absl::Span<const int32_t> steps, const IndirectGemmRows& rows) const {
    IndirectGemm(operands, steps, rows, ProductMode::kOverwrite);
  }
};

struct Bf16Products {
  Bf16GemmOperands operands;

  void Prefetch(int64_t row) const {
    constexpr int64_t kCacheLineElements = 32;
    const uint16_t* at = operands.input + row * operands.c_in;
    for (int64_t c = 0; c < operands.c_in; c += kCacheLineElements) hwy::Prefetch(at + c);
  }
  void Run(absl::Span<const int32_t> steps, const IndirectGemmRows& rows) const {
    IndirectBf16Gemm(operands, steps, rows);
  }
};

// Looks up the inputs of the rows in `order`, and asks for them: the tile before is still to be
// computed, which hides the wait.
template <typename Products>
void FetchTile(absl::Span<const int32_t> order, const int32_t* table, int64_t num_offsets,
               const Products& products, TileInputs& tile) {
  tile.count = static_cast<int64_t>(order.size());
  tile.in.resize(tile.steps.size() * order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t* neighbours = table + order[i] * num_offsets;
    for (size_t s = 0; s < tile.steps.size(); ++s) {
      const int32_t p = neighbours[tile.steps[s]];
      tile.in[s * order.size() + i] = p;
      if (p >= 0) products.Prefetch(p);
    }
  }
}

// Where the run of tiles with the steps of the one at `first` ends. Its rows are computed in one
// call, whose weights then come from the first-level cache.
int64_t RunEnd(const CpuPlan& plan, int64_t split, int64_t first, int64_t end) {
  const int64_t tile = plan.tile();
  const int64_t limit = std::min(end, first + std::max(kRowsPerCall, tile));
  int64_t last = first + tile;
  while (last + tile <= limit &&
         plan.steps(split, last / tile) == plan.steps(split, first / tile)) {
    last += tile;
  }
  return std::min(last, end);
}

// Tiles of one split, from row position `begin` to `end`.
template <typename Products>
void ComputeTiles(const CpuPlan& plan, const MaskSorted& prepared, const Products& products,
                  int64_t split, int64_t begin, int64_t end) {
  const KernelMap& map = prepared.map();
  const MaskSortedArrays& layout = prepared.arrays();
  const int32_t* order = layout.row_order.data() + split * map.num_outputs();
  TileInputs tile, next;
  // Returns where the fetched rows end.
  const auto fetch = [&](int64_t first, TileInputs& to) {
    const int64_t last = RunEnd(plan, split, first, end);
    to.steps = plan.steps(split, first / plan.tile());
    FetchTile({order + first, static_cast<size_t>(last - first)}, map.table().table.data(),
              map.num_offsets(), products, to);
    return last;
  };
  int64_t first = begin;
  int64_t last = fetch(first, tile);
  while (first < end) {
    const int64_t next_last = last < end ? fetch(last, next) : end;
    products.Run(tile.steps, {tile.count, tile.in.data(), tile.count, order + first});
    std::swap(tile, next);
    first = std::exchange(last, next_last);
  }
}

// The same rows one by one, with no padding between them, for weights that are not all finite. The
// sums of finite weights are the same bits as those of tiles.
template <typename Products>
void ComputeRows(const MaskSorted& prepared, const Products& products, int64_t split, int64_t begin,
                 int64_t end) {
  const KernelMap& map = prepared.map();
  const MaskSortedArrays& layout = prepared.arrays();
  const int32_t* order = layout.row_order.data() + split * map.num_outputs();
  std::vector<int32_t> steps, in;
  for (int64_t i = begin; i < end; ++i) {
    const int32_t* neighbours = map.table().table.data() + order[i] * map.num_offsets();
    steps.clear();
    in.clear();
    for (int32_t k = layout.split_ptr[split]; k < layout.split_ptr[split + 1]; ++k) {
      if (neighbours[k] < 0) continue;
      steps.push_back(k);
      in.push_back(neighbours[k]);
    }
    products.Run(steps, {1, in.data(), 1, order + i});
  }
}

// One split, on the context's threads. `finite`: whether all weights are.
template <typename Products>
void ComputeSplit(const CpuPlan& plan, const MaskSorted& map, const Products& products,
                  int64_t split, bool finite, const ExecutionContext& context) {
  const int64_t grain = std::max<int64_t>(kRowsPerTask / plan.tile(), 1) * plan.tile();
  ParallelRanges(context, map.map().num_outputs(), grain, [&](int64_t begin, int64_t end) {
    if (finite) {
      ComputeTiles(plan, map, products, split, begin, end);
    } else {
      ComputeRows(map, products, split, begin, end);
    }
  });
}

// output += the partial sums of splits 1, 2, ..., in that order.
void AddPartials(const CpuPlan& plan, int64_t elements, const float* partial, float* output,
                 const ExecutionContext& context) {
  constexpr int64_t kElementsPerTask = 1 << 15;
  ParallelRanges(context, elements, kElementsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t split = 1; split < plan.splits(); ++split) {
      const float* from = partial + (split - 1) * elements;
      for (int64_t i = begin; i < end; ++i) output[i] += from[i];
    }
  });
}

class ImplicitGemmCpu final : public ImplicitGemm {
 public:
  explicit ImplicitGemmCpu(Options options) : ImplicitGemm(std::move(options), &SortMasksCpu) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    if (shape.types != ConvTypes::Of(Precision::kBF16)) {
      return {.support = F32Only(kImplicitGemmName, shape)};
    }
    Capability bf16{.flushes_denormals = true, .forward_only = true};
    if (options().GetInt("splits") > 1) {
      bf16.support =
          Support::No(absl::StrCat(kImplicitGemmName, ": splits=", options().GetInt("splits"),
                                   " in bf16; allowed on the CPU is 1"));
    } else {
      bf16.support = Support::Yes();
    }
    return bf16;
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass, const PreparedMap& prepared, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const MaskSortedArrays* layout, LayoutOf(prepared));
    const KernelMap& map = prepared.map();
    VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
    const int64_t asked = options().GetInt("tile");
    const int64_t tile = asked == 0 ? kDefaultTile : asked;
    try {
      return std::make_unique<CpuPlan>(tile, map, *layout, shape);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kImplicitGemmName, ": out of memory to plan ", map.num_offsets(), " offsets and ",
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
    const auto& plan = static_cast<const CpuPlan&>(base_plan);
    const auto& map = static_cast<const MaskSorted&>(prepared);
    const ConvShape& shape = plan.shape();
    const auto* prepared_weights = static_cast<const PackedWeights*>(args.prepared_weights);
    const void* panels = nullptr;
    bool finite = true;
    {
      const StageScope stage(context, Stage::kConvert);
      if (prepared_weights != nullptr) {
        panels = prepared_weights->data();
        finite = prepared_weights->finite();
      } else {
        void* own = workspace.Get<void>(plan.weights_slot());
        finite = PackedWeights::Pack(shape, args.weights, own, context);
        panels = own;
      }
      const int64_t row_bytes = shape.c_in * SizeOf(shape.types.input);
      std::fill_n(workspace.Get<char>(plan.zero_row_slot()), row_bytes, char{0});
    }
    const StageScope stage(context, Stage::kFused);
    if (shape.types.precision == Precision::kBF16) {
      const Bf16Products products{
          {static_cast<const uint16_t*>(args.input.data),
           workspace.Get<uint16_t>(plan.zero_row_slot()), static_cast<const uint16_t*>(panels),
           static_cast<uint16_t*>(args.output.data), shape.c_in, shape.c_out}};
      ComputeSplit(plan, map, products, 0, finite, context);
      return absl::OkStatus();
    }
    const int64_t elements = map.map().num_outputs() * shape.c_out;
    float* partial = workspace.Get<float>(plan.partial_slot());
    for (int64_t split = 0; split < plan.splits(); ++split) {
      float* output = split == 0 ? args.output.f32() : partial + (split - 1) * elements;
      const FloatProducts products{{args.input.f32(), workspace.Get<float>(plan.zero_row_slot()),
                                    static_cast<const float*>(panels), output, shape.c_in,
                                    shape.c_out}};
      ComputeSplit(plan, map, products, split, finite, context);
    }
    if (plan.splits() > 1) AddPartials(plan, elements, partial, args.output.f32(), context);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RegisterImplicitGemm(Registry& registry) {
  return registry.dataflows().Register(
      DescribeImplicitGemm(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        // Taken and ignored, they would pass for another configuration.
        if (options.GetEnum("mma") != "auto" || options.GetInt("tile_channels") != 0) {
          return absl::InvalidArgumentError("the CPU has no mma and tile_channels to choose");
        }
        return std::make_unique<ImplicitGemmCpu>(std::move(options));
      });
}

}  // namespace voxconv
