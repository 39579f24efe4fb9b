// SPDX-License-Identifier: Apache-2.0
// Thread blocks own tiles of pairs of one offset and of output channels. Input rows go straight to
// shared memory. Results are added to the output, atomically where a launch has more than one
// offset; the order of these additions varies. The offset under which every row meets itself, where
// there is one, is launched before the others and stores its results, so that nothing is cleared.
// Input gradients are computed offset by offset, so that they are the same bits in every run.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"
#include "voxconv/dataflows/fetch_on_demand/fetch_on_demand.h"
#include "voxconv/dataflows/fetch_on_demand/fgms_cuda.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kPairBytes = 2 * sizeof(int32_t);

bool IsSixteenBit(DType dtype) { return SizeOf(dtype) == 2; }

// Moves the offset under which every row meets itself to a launch of its own. False where there is
// none.
bool PutIdentityFirst(int identity, std::vector<FgmsLaunch>& launches) {
  for (FgmsLaunch& launch : launches) {
    const auto found = std::find(launch.offsets.begin(), launch.offsets.end(), identity);
    if (found == launch.offsets.end()) continue;
    const auto rows = launch.padded_rows.begin() + (found - launch.offsets.begin());
    FgmsLaunch first{{identity}, {*rows}};
    launch.offsets.erase(found);
    launch.padded_rows.erase(rows);
    std::erase_if(launches, [](const FgmsLaunch& each) { return each.offsets.empty(); });
    launches.insert(launches.begin(), std::move(first));
    return true;
  }
  return false;
}

// Cuts the pairs of every offset into tiles. Books an f32 sum of the output where that is stored in
// 16 bits. O(K).
class CudaPlan final : public DataflowPlan {
 public:
  CudaPlan(std::vector<FgmsLaunch> launches, const KernelMap& map, const ConvShape& shape,
           int compute_capability)
      : launches_(std::move(launches)),
        stores_first_(PutIdentityFirst(map.identity_offset(), launches_)),
        tile_(ChooseFgmsTile(shape.types.precision, shape.c_out, compute_capability)) {
    if (IsSixteenBit(shape.types.output)) {
      sum_slot_ = booking_.Book<float>(map.num_outputs() * shape.c_out);
    }
    Count(map, shape);
    kernel_ = absl::StrCat(tile_.tensor_cores ? "mma " : "fma ", tile_.pairs, " pairs x ",
                           tile_.channels);
  }

  const std::vector<FgmsLaunch>& launches() const { return launches_; }
  // Whether the first launch stores every output row, so that nothing need be cleared.
  bool stores_first() const { return stores_first_; }
  const FgmsTile& tile() const { return tile_; }
  int sum_slot() const { return sum_slot_; }  // [N_out, c_out]; 16-bit outputs only

 private:
  // Pairs and inputs are read once a tile of channels, weights once a tile; a pair's sum is read
  // and written, but stored alone in the first launch or cleared before. Launches are counted as
  // they are made.
  void Count(const KernelMap& map, const ConvShape& shape) {
    const int64_t size = SizeOf(shape.types.input);
    const int64_t sum_bytes = map.num_outputs() * shape.c_out * kFloatBytes;
    int64_t tiles = 0;
    for (const FgmsLaunch& launch : launches_) {
      for (int64_t rows : launch.padded_rows) {
        work_.padded_pairs += rows;
        tiles += CeilDiv(rows, tile_.pairs);
      }
    }
    const int64_t pairs = map.num_pairs();
    work_.true_pairs = pairs;
    work_.bytes_read =
        CeilDiv(shape.c_out, tile_.channels) * pairs * (shape.c_in * size + kPairBytes) +
        tiles * shape.c_in * shape.c_out * size + pairs * shape.c_out * kFloatBytes;
    work_.bytes_written = pairs * shape.c_out * kFloatBytes;
    if (stores_first_) {
      work_.bytes_read -= sum_bytes;
    } else {
      work_.bytes_written += sum_bytes;
    }
    if (IsSixteenBit(shape.types.output)) {
      work_.bytes_read += sum_bytes;
      work_.bytes_written += map.num_outputs() * shape.c_out * size;
    }
  }

  std::vector<FgmsLaunch> launches_;
  bool stores_first_;
  FgmsTile tile_;
  int sum_slot_ = 0;
};

// Queues one launch of the schedule; as several where it has more offsets or tiles than a kernel
// takes.
absl::Status RunLaunch(const CudaPlan& plan, const FgmsLaunch& launch, const KernelMap& map,
                       const FgmsOperands& operands, const ExecutionContext& context) {
  const int64_t tile_pairs = plan.tile().pairs;
  FgmsSegments segments;
  int64_t tiles = 0;
  const auto flush = [&]() -> absl::Status {
    segments.tile_ptr[segments.count] = static_cast<int32_t>(tiles);
    VOXCONV_RETURN_IF_ERROR(LaunchFgms(plan.tile(), segments, operands, context));
    segments.count = 0;
    tiles = 0;
    return absl::OkStatus();
  };
  for (size_t j = 0; j < launch.offsets.size(); ++j) {
    const int32_t k = launch.offsets[j];
    const int64_t here = CeilDiv(launch.padded_rows[j], tile_pairs);
    if (segments.count == FgmsSegments::kMax || tiles + here > INT32_MAX) {
      VOXCONV_RETURN_IF_ERROR(flush());
    }
    segments.offset[segments.count] = k;
    segments.tile_ptr[segments.count] = static_cast<int32_t>(tiles);
    segments.pair_begin[segments.count] = map.offset_ptr()[k];
    segments.pair_end[segments.count] = map.offset_ptr()[k + 1];
    ++segments.count;
    tiles += here;
  }
  return flush();
}

template <typename T, int V>
__global__ void RoundSum(const float* sum, int64_t packs, T* output) {
  const int64_t i = GlobalThread();
  if (i >= packs) return;
  const Pack<float, V> in = reinterpret_cast<const Pack<float, V>*>(sum)[i];
  Pack<T, V> out;
  for (int j = 0; j < V; ++j) out.v[j] = Narrow<T>(in.v[j]);
  reinterpret_cast<Pack<T, V>*>(output)[i] = out;
}

absl::Status RoundTo(const float* sum, const TensorView& output, const ExecutionContext& context) {
  const int64_t size = output.rows * output.channels;
  return WithPack(output.dtype, size, {output.data}, [&]<typename T, int V>() {
    VOXCONV_LAUNCH((RoundSum<T, V>), GridFor(size / V, kThreads), kThreads, 0, context, sum,
                   size / V, static_cast<T*>(output.data));
    return absl::OkStatus();
  });
}

absl::Status RunCopies(const CopyPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) {
  const StageScope stage(context, Stage::kFused);
  const ConvShape& shape = plan.shape();
  const bool rounds = plan.sum_slot() >= 0;
  float* sum = rounds ? workspace.Get<float>(plan.sum_slot()) : args.output.f32();
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(
      sum, 0, map.num_outputs() * shape.c_out * kFloatBytes, *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      AddCopiedProductsCuda(map,
                            {.input = args.input.data,
                             .weights = args.weights.data,
                             .sum = sum,
                             .rows = workspace.Get<char>(plan.rows_slot()),
                             .products = workspace.Get<float>(plan.products_slot()),
                             .c_in = shape.c_in,
                             .c_out = shape.c_out,
                             .precision = shape.types.precision},
                            context));
  return rounds ? RoundTo(sum, args.output, context) : absl::OkStatus();
}

class FetchOnDemandCuda final : public FetchOnDemand {
 public:
  explicit FetchOnDemandCuda(Options options) : FetchOnDemand(std::move(options)) {
    if (fusion() == FgmsFusion::kSeparate || this->options().GetEnum("input_grad") == "atomic") {
      return;
    }
    separate_.reset(new FetchOnDemandCuda(this->options(), FgmsFusion::kSeparate));
    separate_->SetLabel(absl::StrCat("dataflow ", kFetchOnDemandName));
  }

 protected:
  bool Has(Pass pass) const override {
    return pass == Pass::kForward || (pass == Pass::kInputGrad && separate_ != nullptr);
  }

  Capability DoCapability(Pass pass, const ConvShape& shape) const override {
    if (pass == Pass::kInputGrad) return separate_->CapabilityOf(pass, shape);
    // The offsets of one launch add to the same rows in any order.
    return {.support = UniformTypes(kFetchOnDemandName, shape),
            .deterministic = fusion() == FgmsFusion::kSeparate};
  }

  MapNeed DoNeededMap(Pass pass, const ConvShape& shape) const override {
    if (pass == Pass::kInputGrad) return separate_->NeededMap(pass, shape);
    return FetchOnDemand::DoNeededMap(pass, shape);
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    if (pass == Pass::kInputGrad) return separate_->Plan(pass, map, shape, context);
    if (Copies(map.map(), shape)) {
      return std::make_unique<CopyPlan>(map.map(), shape, /*counts_launches=*/false);
    }
    return std::make_unique<CudaPlan>(ScheduleFgms(fusion(), map.map().offset_ptr()), map.map(),
                                      shape, AsCuda(context).compute_capability());
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const KernelMap& map = prepared.map();
    if (const auto* copies = dynamic_cast<const CopyPlan*>(&base_plan)) {
      return RunCopies(*copies, map, args, workspace, context);
    }
    const auto& plan = static_cast<const CudaPlan&>(base_plan);
    const PairList& pairs = map.pairs();
    const ConvShape& shape = plan.shape();
    const bool rounds = IsSixteenBit(shape.types.output);
    float* sum = rounds ? workspace.Get<float>(plan.sum_slot()) : args.output.f32();
    const StageScope stage(context, Stage::kFused);
    if (!plan.stores_first()) {
      VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(
          sum, 0, map.num_outputs() * shape.c_out * kFloatBytes, *context.stream));
    }
    FgmsOperands operands{
        .in = pairs.in.data(),
        .out = pairs.out.data(),
        .input = args.input.data,
        .weights = args.weights.data,
        .sum = sum,
        .c_in = shape.c_in,
        .c_out = shape.c_out,
        .precision = shape.types.precision,
        .vector_sum = shape.c_out % 4 == 0 && reinterpret_cast<uintptr_t>(sum) % 16 == 0};
    for (const FgmsLaunch& launch : plan.launches()) {
      // An output row occurs once an offset.
      operands.write = launch.offsets.size() > 1 ? FgmsWrite::kAddAtomic : FgmsWrite::kAdd;
      if (plan.stores_first() && &launch == &plan.launches().front()) {
        operands.write = FgmsWrite::kStore;
      }
      VOXCONV_RETURN_IF_ERROR(RunLaunch(plan, launch, map, operands, context));
    }
    return rounds ? RoundTo(sum, args.output, context) : absl::OkStatus();
  }

  absl::Status DoInputGrad(const DataflowPlan& plan, const PreparedMap& map,
                           const InputGradArgs& args, const Workspace& workspace,
                           const ExecutionContext& context) const override {
    return separate_->InputGrad(plan, map, args, workspace, context);
  }

 private:
  FetchOnDemandCuda(Options options, FgmsFusion fusion)
      : FetchOnDemand(std::move(options), fusion) {}

  // Computes input gradients offset by offset. Null where the forward pass on the transposed map
  // does so too, or may add atomically.
  std::unique_ptr<const FetchOnDemandCuda> separate_;
};

}  // namespace

FgmsTile ChooseFgmsTile(Precision precision, int64_t c_out, int compute_capability) {
  FgmsTile tile;
  tile.tensor_cores = precision != Precision::kF32 && compute_capability >= 80;
  if (!tile.tensor_cores && IsSixteenBit(StorageOf(precision))) {
    tile.channels = 32;
  } else {
    const int widest = tile.tensor_cores ? 128 : 64;
    tile.channels = 16;
    while (tile.channels < c_out && tile.channels < widest) tile.channels *= 2;
  }
  tile.pairs = !tile.tensor_cores && tile.channels == 64 ? 64 : 128;
  return tile;
}

absl::Status LaunchFgms(const FgmsTile& tile, const FgmsSegments& segments,
                        const FgmsOperands& operands, const ExecutionContext& context) {
  return tile.tensor_cores ? LaunchFgmsMma(tile, segments, operands, context)
                           : LaunchFgmsSimt(tile, segments, operands, context);
}

absl::Status RegisterFetchOnDemandCuda(Registry& registry) {
  return registry.dataflows().Implement(
      kFetchOnDemandName, BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        // Taken and ignored, it would pass for another configuration.
        if (options.GetEnum("mma") != "auto") {
          return absl::InvalidArgumentError("CUDA has no mma of fetch_on_demand to choose");
        }
        return MakeFetchOnDemand<FetchOnDemandCuda>(std::move(options));
      });
}

}  // namespace voxconv
