// SPDX-License-Identifier: Apache-2.0
// Tensor cores for tf32, f16 and bf16 from compute capability 8.0 on. Neither planning nor running
// waits for the device, unless counters are asked for of a map whose pairs are counted.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/transpose_weights.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/version.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm_kernels.h"
#include "voxconv/dataflows/implicit_gemm/instances.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kIndexBytes = sizeof(int32_t);
constexpr int64_t kFloatBytes = sizeof(float);

// The weights of a layer as a kernel reads them.
class WeightsForm {
 public:
  WeightsForm(const ImplicitGemmTile& tile, const ConvShape& shape)
      : shape_(shape), rows_(tile.padded_c_in), columns_(shape.c_out) {
    if (tile.kernel == ImplicitGemmKernel::kFma) return;
    const int64_t size = SizeOf(shape.types.weights);
    columns_ = CeilDiv(columns_, kVectorBytes / size) * (kVectorBytes / size);
    transposed_ = tile.kernel == ImplicitGemmKernel::kWarpgroup && size == kFloatBytes;
    splits_f32_ = transposed_ && shape.types.precision == Precision::kF32;
    copied_ = rows_ != shape.c_in || columns_ != shape.c_out || transposed_;
    bytes_ = shape.num_offsets * rows_ * columns_ * size * (splits_f32_ ? 2 : 1);
    if (!copied_) return;
    layout_ = absl::StrCat(transposed_ ? "transposed" : "padded", ":rows=", rows_,
                           ",columns=", columns_, splits_f32_ ? ",remainders" : "");
  }

  // Whether the kernel reads a copy, with rows of whole vectors.
  bool copied() const { return copied_; }
  // Whether that copy is transposed and rounded, as the warpgroup kernel needs it in tf32. Its
  // products take operands whose depth is contiguous.
  bool transposed() const { return transposed_; }
  // Whether the remainders of the weights' rounding follow them.
  bool splits_f32() const { return splits_f32_; }
  int64_t bytes() const { return bytes_; }               // of the copy
  const std::string& layout() const { return layout_; }  // of the copy; empty: none
  int64_t ld() const { return transposed_ ? rows_ : columns_; }

  // Queues the copy of `from`, which has the layer's shape.
  absl::Status Write(const void* from, void* to, const ExecutionContext& context) const {
    if (transposed_) {
      return CudaTransposeToTf32(static_cast<const float*>(from), shape_.num_offsets, shape_.c_in,
                                 shape_.c_out, rows_, splits_f32_, static_cast<float*>(to),
                                 context);
    }
    return LaunchPad(from, shape_.c_out, to, shape_.num_offsets, shape_.c_in, shape_.c_out, rows_,
                     columns_, SizeOf(shape_.types.weights), context);
  }

 private:
  ConvShape shape_;
  int64_t rows_;
  int64_t columns_;
  int64_t bytes_ = 0;
  bool copied_ = false, transposed_ = false, splits_f32_ = false;
  std::string layout_;
};

class CudaPlan final : public DataflowPlan {
 public:
  CudaPlan(const ImplicitGemmTile& tile, const KernelMap& map, int splits, const ConvShape& shape)
      : tile_(tile),
        weights_(tile, shape),
        size_(SizeOf(shape.types.input)),
        parts_(int64_t{splits} * tile.k_parts),
        pads_input_(tile.padded_c_in != shape.c_in),
        counts_pairs_(map.counts_known() && map.num_outputs() > 0) {
    weights_layout_ = weights_.layout();
    if (tensor_cores()) {
      input_slot_ = booking_.Book(pads_input() ? map.num_inputs() * tile.padded_c_in * size_ : 0);
      weights_slot_ = booking_.Book(weights_.copied() ? weights_.bytes() : 0);
    }
    shared_slot_ =
        booking_.Book<float>(int64_t{tile.shared_tiles} * tile.shares * tile.rows * tile.channels);
    partial_slot_ = booking_.Book<float>(parts_ > 1 ? parts_ * map.num_outputs() * shape.c_out : 0);
    if (counts_pairs_) Count(map, splits, shape);
    kernel_ = KernelName();
  }

  const ImplicitGemmTile& tile() const { return tile_; }
  bool tensor_cores() const { return tile_.kernel != ImplicitGemmKernel::kFma; }
  int64_t element_bytes() const { return size_; }
  const WeightsForm& weights() const { return weights_; }
  // Whether the kernel reads a copy in the workspace, with rows of whole vectors.
  bool pads_input() const { return pads_input_; }
  int64_t parts() const { return parts_; }
  // Whether work() has counts. The padded pairs are missing in it: only the device knows them.
  bool counts_pairs() const { return counts_pairs_; }

  int input_slot() const { return input_slot_; }
  int weights_slot() const { return weights_slot_; }
  int shared_slot() const { return shared_slot_; }    // ImplicitGemmArgs::shared_sums
  int partial_slot() const { return partial_slot_; }  // [parts, N_out, c_out]

 private:
  std::string KernelName() const {
    std::string name = absl::StrCat(ToString(tile_.kernel), " ", tile_.rows, " x ", tile_.channels);
    if (weights_.splits_f32()) absl::StrAppend(&name, ", 3 tf32 products");
    if (parts_ > 1) absl::StrAppend(&name, ", sums of ", parts_, " parts");
    if (pads_input_) absl::StrAppend(&name, ", padded inputs");
    if (weights_.copied()) {
      absl::StrAppend(&name, weights_.transposed() ? ", transposed weights" : ", padded weights");
    }
    return name;
  }

  // A block of channels reads the table and the inputs anew; weights are left out: how often they
  // are read depends on what the tiles skip. Partial sums are written once and read once.
  void Count(const KernelMap& map, int64_t splits, const ConvShape& shape) {
    const int64_t rows = map.num_outputs();
    const int64_t output_bytes = rows * shape.c_out * size_;
    const int64_t partial_bytes =
        parts_ > 1 ? parts_ * rows * shape.c_out * kFloatBytes : int64_t{0};
    work_.true_pairs = map.num_pairs();
    work_.bytes_read = CeilDiv(shape.c_out, tile_.channels) *
                           (rows * map.num_offsets() * kIndexBytes + splits * rows * kIndexBytes +
                            map.num_pairs() * tile_.padded_c_in * size_) +
                       map.num_offsets() * shape.c_in * shape.c_out * size_ + partial_bytes;
    work_.bytes_written = partial_bytes + output_bytes;
  }

  ImplicitGemmTile tile_;
  WeightsForm weights_;
  int64_t size_;  // of an element
  int64_t parts_;
  bool pads_input_;
  bool counts_pairs_;
  int input_slot_ = 0, weights_slot_ = 0, shared_slot_ = 0, partial_slot_ = 0;
};

// Elements from one row to the next. A matrix of one row may name any number.
int64_t StrideOf(const ConstTensorView& view) {
  return view.rows > 1 ? view.row_stride : view.channels;
}

ImplicitGemmArgs ArgsOf(const CudaPlan& plan, const MaskSorted& prepared,
                        const ForwardArgs& forward) {
  const KernelMap& map = prepared.map();
  const MaskSortedArrays& layout = prepared.arrays();
  ImplicitGemmArgs args;
  args.input = forward.input.data;
  args.input_row_bytes = static_cast<uint32_t>(StrideOf(forward.input) * plan.element_bytes());
  args.weights = forward.weights.data;
  args.output = forward.output.data;
  args.ld_output = static_cast<int>(StrideOf(forward.output));
  args.ordered = layout.ordered_table.size() > 0;
  args.table = args.ordered ? layout.ordered_table.data() : map.table().table.data();
  args.masks = args.ordered ? layout.ordered_masks.data() : layout.masks.data();
  args.row_order = layout.row_order.size() > 0 ? layout.row_order.data() : nullptr;
  args.num_outputs = map.num_outputs();
  args.num_offsets = map.num_offsets();
  args.words = layout.words;
  args.c_in = static_cast<int>(plan.tile().padded_c_in);
  args.c_out = static_cast<int>(plan.shape().c_out);
  args.ld_weights = static_cast<int>(plan.weights().ld());
  args.splits = layout.splits();
  args.k_parts = plan.tile().k_parts;
  args.shares = plan.tile().shares;
  args.shared_tiles = plan.tile().shared_tiles;
  args.share_offsets = plan.tile().share_offsets;
  std::copy(layout.split_ptr.begin(), layout.split_ptr.end(), args.split_ptr);
  const Epilogue& epilogue = forward.epilogue;
  args.scale = epilogue.scale;
  args.shift = epilogue.shift;
  args.residual = epilogue.residual.data;
  args.relu = epilogue.relu;
  args.settled = forward.settled;
  args.vector_stores = args.c_out % 8 == 0 && args.ld_output % 8 == 0 &&
                       Aligned({args.output, args.residual, args.scale, args.shift}, kVectorBytes);
  return args;
}

// Copies of what the kernels could not read in whole vectors: planned for where rows are not, made
// on the spot where only the caller's pointers are not.
class PaddedOperands {
 public:
  // `prepared`: the weights in the plan's layout, or null.
  PaddedOperands(const CudaPlan& plan, const KernelMap& map, const PreparedWeights* prepared,
                 const Workspace& workspace)
      : plan_(plan), map_(map), prepared_(prepared), workspace_(workspace) {}

  absl::Status Replace(const ExecutionContext& context, ImplicitGemmArgs& args) {
    if (!plan_.tensor_cores()) return absl::OkStatus();
    if (prepared_ != nullptr) args.weights = prepared_->data();
    const int64_t vector = std::min(kVectorBytes, args.c_in * plan_.element_bytes());
    const bool input = plan_.pads_input() || !Aligned({args.input}, kVectorBytes) ||
                       args.input_row_bytes % vector != 0;
    const bool weights = prepared_ == nullptr &&
                         (plan_.weights().copied() || !Aligned({args.weights}, kVectorBytes));
    if (!input && !weights) return absl::OkStatus();
    StageScope stage(context, Stage::kConvert);
    const ConvShape& shape = plan_.shape();
    const int64_t size = plan_.element_bytes();
    if (input) {
      VOXCONV_ASSIGN_OR_RETURN(void* to,
                               Room(plan_.pads_input(), plan_.input_slot(),
                                    map_.num_inputs() * args.c_in * size, input_, context));
      VOXCONV_RETURN_IF_ERROR(LaunchPad(args.input, args.input_row_bytes / size, to,
                                        map_.num_inputs(), 1, shape.c_in, 1, args.c_in, size,
                                        context));
      args.input = to;
      args.input_row_bytes = static_cast<uint32_t>(args.c_in * size);
    }
    if (!weights) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(void* to, Room(plan_.weights().copied(), plan_.weights_slot(),
                                            plan_.weights().bytes(), weights_, context));
    const void* from = std::exchange(args.weights, to);
    args.settled = false;
    return plan_.weights().Write(from, to, context);
  }

 private:
  absl::StatusOr<void*> Room(bool planned, int slot, int64_t bytes, Buffer& buffer,
                             const ExecutionContext& context) {
    if (planned) return workspace_.Get<void>(slot);
    VOXCONV_ASSIGN_OR_RETURN(buffer, context.backend->Allocate(bytes, *context.stream));
    return buffer.data();
  }

  const CudaPlan& plan_;
  const KernelMap& map_;
  const PreparedWeights* prepared_;
  const Workspace& workspace_;
  Buffer input_, weights_;
};

absl::Status LaunchTiles(const CudaPlan& plan, const ImplicitGemmArgs& args,
                         const ExecutionContext& context) {
  const ImplicitGemmTile& tile = plan.tile();
  const Precision precision = plan.shape().types.precision;
  switch (tile.kernel) {
    case ImplicitGemmKernel::kFma:
      return LaunchImplicitGemmFma(tile, args, plan.shape().types.input, context);
    case ImplicitGemmKernel::kWarp:
      if (precision == Precision::kF16) return LaunchImplicitGemmWarpF16(tile, args, context);
      if (precision == Precision::kBF16) return LaunchImplicitGemmWarpBF16(tile, args, context);
      return LaunchImplicitGemmWarpTf32(tile, args, context);
    case ImplicitGemmKernel::kWarpgroup:
      if (precision == Precision::kF16) return LaunchImplicitGemmWarpgroupF16(tile, args, context);
      if (precision == Precision::kBF16) {
        return LaunchImplicitGemmWarpgroupBF16(tile, args, context);
      }
      if (precision == Precision::kF32) return LaunchImplicitGemmWarpgroupF32(tile, args, context);
      return LaunchImplicitGemmWarpgroupTf32(tile, args, context);
    case ImplicitGemmKernel::kBlock:
      if (precision == Precision::kF16) return LaunchImplicitGemmBlockF16(tile, args, context);
      if (precision == Precision::kBF16) return LaunchImplicitGemmBlockBF16(tile, args, context);
      return LaunchImplicitGemmBlockTf32(tile, args, context);
  }
  return absl::InternalError("implicit_gemm: unknown kernel");
}

class ImplicitGemmCuda final : public ImplicitGemm {
 public:
  explicit ImplicitGemmCuda(Options options) : ImplicitGemm(std::move(options), &SortMasksCuda) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = UniformTypes(kImplicitGemmName, shape),
            .fuses_epilogue = true,
            .isolates_weights = false,
            .strides_rows = true};
  }

  // Three products of tf32 take so long that the padding of tiles counts more than sums of parts.
  // The least number of channels gives two tiles side by side, so that few rows fill the device.
  bool CutsByRows(const ConvShape& shape) const override {
    constexpr int kFewestOffsets = 27;
    constexpr int64_t kFewestChannels = 129;
    return shape.types.precision == Precision::kF32 && options().GetEnum("mma") == "3xtf32" &&
           shape.num_offsets >= kFewestOffsets && shape.c_out >= kFewestChannels;
  }

  int PartsOfRows(int64_t rows, const ExecutionContext& context) const override {
    constexpr int kParts = 3, kTilesBeside = 2;
    constexpr int64_t kTileRows = 128, kMostRows = 1 << 16;
    const int64_t blocks = CeilDiv(rows, kTileRows) * kTilesBeside * kParts;
    return rows <= kMostRows && blocks >= AsCuda(context).num_multiprocessors() ? kParts : 1;
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass, const PreparedMap& prepared, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const MaskSortedArrays* layout, LayoutOf(prepared));
    const KernelMap& map = prepared.map();
    constexpr int64_t kMaxChannels = 1 << 20;
    if (shape.c_in > kMaxChannels || shape.c_out > kMaxChannels) {
      return absl::InvalidArgumentError(absl::StrCat(kImplicitGemmName, ": ", shape.c_in, " -> ",
                                                     shape.c_out, " channels; at most ",
                                                     kMaxChannels, " on CUDA"));
    }
    VOXCONV_CHECK(layout->splits() <= ImplicitGemmArgs::kMaxSplits);
    int num_offsets = 0;
    for (int s = 0; s < layout->splits(); ++s) {
      num_offsets = std::max(num_offsets, layout->split_ptr[s + 1] - layout->split_ptr[s]);
    }
    const ImplicitGemmTile tile =
        TileFor(shape, layout->splits(), num_offsets, map.num_outputs(), context);
    return std::make_unique<CudaPlan>(tile, map, layout->splits(), shape);
  }

  // As plans with rows enough for any kernel read them.
  absl::StatusOr<std::unique_ptr<PreparedWeights>> DoPrepareWeights(
      const ConvShape& shape, const ConstTensorView& weights,
      const ExecutionContext& context) const override {
    constexpr int64_t kManyRows = 1 << 20;
    const auto splits =
        static_cast<int>(std::clamp<int64_t>(options().GetInt("splits"), 1, shape.num_offsets));
    const ImplicitGemmTile tile =
        TileFor(shape, splits, CeilDiv(shape.num_offsets, splits), kManyRows, context);
    const WeightsForm form(tile, shape);
    if (!form.copied()) return nullptr;
    VOXCONV_ASSIGN_OR_RETURN(Buffer memory,
                             context.backend->Allocate(form.bytes(), *context.stream));
    VOXCONV_RETURN_IF_ERROR(form.Write(weights.data, memory.data(), context));
    return std::make_unique<PreparedWeights>(std::move(memory), form.layout());
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& forward, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& plan = static_cast<const CudaPlan&>(base_plan);
    const auto& map = static_cast<const MaskSorted&>(prepared);
    if (map.map().num_outputs() == 0) return absl::OkStatus();
    VOXCONV_RETURN_IF_ERROR(CheckStride("features", StrideOf(forward.input)));
    VOXCONV_RETURN_IF_ERROR(CheckStride("output", StrideOf(forward.output)));
    ImplicitGemmArgs args = ArgsOf(plan, map, forward);
    PaddedOperands padded_operands(plan, map.map(), forward.prepared_weights, workspace);
    VOXCONV_RETURN_IF_ERROR(padded_operands.Replace(context, args));
    if (args.shared_tiles > 0) args.shared_sums = workspace.Get<float>(plan.shared_slot());
    if (plan.parts() > 1) args.partial = workspace.Get<float>(plan.partial_slot());
    {
      const StageScope stage(context, Stage::kFused);
      VOXCONV_RETURN_IF_ERROR(LaunchTiles(plan, args, context));
      if (plan.parts() > 1) {
        VOXCONV_RETURN_IF_ERROR(LaunchSumPartials(args, plan.shape().types.output, context));
      }
    }
    Counters* counters = context.counters();
    if (counters == nullptr || !plan.counts_pairs()) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(const int64_t padded,
                             CountPaddedPairs(args, plan.tile().skip_rows, context));
    counters->padded_pairs += padded;
    return absl::OkStatus();
  }

 private:
  // Kernels count the bytes of a row in 32 bits.
  static absl::Status CheckStride(const char* name, int64_t stride) {
    constexpr int64_t kMostElements = 1 << 28;
    if (stride <= kMostElements) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, ": row stride ", stride, "; ",
                                                   kImplicitGemmName, " takes at most ",
                                                   kMostElements, " on CUDA"));
  }

  // `num_offsets`: those of the largest split.
  ImplicitGemmTile TileFor(const ConvShape& shape, int splits, int num_offsets, int64_t num_outputs,
                           const ExecutionContext& context) const {
    const ImplicitGemmChoice choice{.warpgroups = options().GetEnum("mma") != "warp",
                                    .splits_f32 = options().GetEnum("mma") == "3xtf32",
                                    .tile = options().GetInt("tile"),
                                    .tile_channels = options().GetInt("tile_channels"),
                                    .num_offsets = num_offsets,
                                    .splits = splits,
                                    .num_outputs = num_outputs};
    const CudaBackend& cuda = AsCuda(context);
    const ImplicitGemmDevice device{cuda.compute_capability(), cuda.max_shared_memory(),
                                    cuda.num_multiprocessors(),
                                    VOXCONV_HAVE_SM90A != 0 && cuda.compute_capability() == 90};
    return ChooseImplicitGemmTile(choice, shape.types.precision, shape.c_in, shape.c_out, device);
  }
};

}  // namespace

absl::Status RegisterImplicitGemmCuda(Registry& registry) {
  return registry.dataflows().Implement(
      kImplicitGemmName, BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<ImplicitGemmCuda>(std::move(options));
      });
}

}  // namespace voxconv
