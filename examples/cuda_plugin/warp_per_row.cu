// SPDX-License-Identifier: Apache-2.0
// A complete CUDA dataflow plugin: a warp has one output row. Its lanes read 32 offsets of the
// row's neighbour table at once, vote on which of them have an input, and go through these
// together, each lane with an output channel of its own. Simple, without shared memory or tensor
// cores; meant to be copied and replaced part by part.
#include <cstdint>
#include <memory>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/plugin_api.h"
#include "voxconv/core/types.h"

namespace {

constexpr int kWarp = 32;

// All in device memory.
template <typename T>
struct KernelArgs {
  const int32_t* table;  // [num_rows, num_offsets]: the input row, or -1
  const T* input;        // [N_in, c_in]
  const T* weights;      // [num_offsets * c_in, c_out]
  T* output;             // [num_rows, c_out]
  int64_t num_rows, num_offsets, c_in, c_out;
};

// blockDim.y warps, each with one row and 32 output channels.
template <typename T>
__global__ void WarpPerRowKernel(const KernelArgs<T> args) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t channel = int64_t{blockIdx.y} * kWarp + lane;
  if (row >= args.num_rows) return;  // the whole warp
  const bool has_channel = channel < args.c_out;
  float sum = 0;
  for (int64_t first = 0; first < args.num_offsets; first += kWarp) {
    const int32_t found =
        first + lane < args.num_offsets ? args.table[row * args.num_offsets + first + lane] : -1;
    for (unsigned left = __ballot_sync(~0u, found >= 0); left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const T* x = args.input + int64_t{__shfl_sync(~0u, found, bit)} * args.c_in;
      const T* w = args.weights + (first + bit) * args.c_in * args.c_out + channel;
      for (int64_t c = 0; has_channel && c < args.c_in; ++c) {
        sum = fmaf(voxconv::Widen(x[c]), voxconv::Widen(w[c * args.c_out]), sum);
      }
    }
  }
  if (has_channel) args.output[row * args.c_out + channel] = voxconv::Narrow<T>(sum);
}

constexpr char kName[] = "warp_per_row";

// What DoPlan decides. Nothing is booked: sums stay in registers.
class WarpPerRowPlan final : public voxconv::DataflowPlan {
 public:
  WarpPerRowPlan(const voxconv::KernelMap& map, const voxconv::ConvShape& shape) {
    kernel_ = "one warp for 32 channels of a row";
    if (!map.counts_known()) return;  // counting would make the host wait for the device
    const int64_t size = voxconv::SizeOf(shape.types.input);
    const int64_t warps_a_row = voxconv::CeilDiv(shape.c_out, kWarp);
    work_.true_pairs = work_.padded_pairs = map.num_pairs();
    work_.bytes_read =
        warps_a_row * (map.num_outputs() * map.num_offsets() * int64_t{sizeof(int32_t)} +
                       map.num_pairs() * shape.c_in * size) +
        map.num_pairs() * shape.c_in * shape.c_out * size;
    work_.bytes_written = map.num_outputs() * shape.c_out * size;
  }
};

class WarpPerRow final : public voxconv::Dataflow {
 public:
  explicit WarpPerRow(voxconv::Options options)
      : options_(std::move(options)), warps_(static_cast<unsigned>(options_.GetInt("warps"))) {}

  const voxconv::Options& options() const override { return options_; }

 protected:
  // What is asked for runs or is refused with the reason; nothing is replaced in silence. The
  // result is deterministic: one thread adds all products of an output value, offset by offset.
  voxconv::Capability DoCapability(voxconv::Pass /*pass*/,
                                   const voxconv::ConvShape& shape) const override {
    return {.support = voxconv::UniformTypes(kName, shape)};
  }

  voxconv::MapNeed DoNeededMap(voxconv::Pass /*pass*/,
                               const voxconv::ConvShape& /*shape*/) const override {
    return {.form = voxconv::MapForm::kNeighbourTable};
  }

  absl::StatusOr<std::unique_ptr<voxconv::DataflowPlan>> DoPlan(
      voxconv::Pass /*pass*/, const voxconv::PreparedMap& map, const voxconv::ConvShape& shape,
      const voxconv::ExecutionContext& /*context*/) const override {
    return std::make_unique<WarpPerRowPlan>(map.map(), shape);
  }

  // Arguments are checked already, and the plan's work is counted afterwards.
  absl::Status DoForward(const voxconv::DataflowPlan& plan, const voxconv::PreparedMap& map,
                         const voxconv::ForwardArgs& args, const voxconv::Workspace& /*workspace*/,
                         const voxconv::ExecutionContext& context) const override {
    const voxconv::StageScope stage(context, voxconv::Stage::kFused);
    const auto launch = [&]<typename T>() {
      return Launch<T>(plan.shape(), map.map(), args, context);
    };
    return voxconv::WithStoredType(plan.shape().types.input, launch);
  }

 private:
  template <typename T>
  absl::Status Launch(const voxconv::ConvShape& shape, const voxconv::KernelMap& map,
                      const voxconv::ForwardArgs& forward,
                      const voxconv::ExecutionContext& context) const {
    const KernelArgs<T> args{.table = map.table().table.data(),
                             .input = static_cast<const T*>(forward.input.data),
                             .weights = static_cast<const T*>(forward.weights.data),
                             .output = static_cast<T*>(forward.output.data),
                             .num_rows = map.num_outputs(),
                             .num_offsets = map.num_offsets(),
                             .c_in = shape.c_in,
                             .c_out = shape.c_out};
    const dim3 grid(static_cast<unsigned>(voxconv::CeilDiv(args.num_rows, warps_)),
                    static_cast<unsigned>(voxconv::CeilDiv(args.c_out, kWarp)));
    // On the context's stream, checked and counted; an empty grid queues nothing.
    VOXCONV_LAUNCH(WarpPerRowKernel<T>, grid, dim3(kWarp, warps_), 0, context, args);
    return absl::OkStatus();
  }

  voxconv::Options options_;
  unsigned warps_;
};

absl::Status RegisterWarpPerRow(voxconv::Registry& registry) {
  voxconv::OptionSchema options;
  options.Int("warps", 8, 1, 32, "warps, that is, output rows, in a thread block");
  return registry.dataflows().Register(
      {.name = kName,
       .summary = "a warp an output row votes on its offsets and adds their products",
       .source = "the plugin guide's example",
       .options = std::move(options),
       .extra_variants = {"warps=1"}},
      voxconv::BackendKind::kCuda,
      [](voxconv::Options values) -> absl::StatusOr<std::unique_ptr<const voxconv::Dataflow>> {
        return std::make_unique<WarpPerRow>(std::move(values));
      });
}

}  // namespace

VOXCONV_PLUGIN(warp_per_row, RegisterWarpPerRow)
