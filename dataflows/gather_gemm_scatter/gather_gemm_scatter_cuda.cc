// SPDX-License-Identifier: Apache-2.0
// Partial products are stored in the features' dtype, as TorchSparse and Minuet store them. They
// are added up in f32 in the order identity offset, passes, ascending offsets, and the sum is
// rounded once. Deterministic where no atomics are used: in the orders of locality and of tiles an
// output row is one thread's; in weight order with offsets_per_launch=1 an offset is one launch,
// and no output row occurs in it twice.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/stream_fork.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/dataflows/gather_gemm_scatter/gather_gemm_scatter.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/plan_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/ragged_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"

namespace voxconv {
namespace {

// Both sides of the map as the kernels read them.
struct MapSides {
  DeviceRows in, out;
};

MapSides SidesOf(const PreparedMap& map, PositionLayout layout) {
  const int num_offsets = map.map().num_offsets();
  if (layout == PositionLayout::kCodedCsr) {
    const CodedCsrArrays& csr = static_cast<const CodedCsr&>(map).arrays();
    return {DeviceCodedRows{csr.in_ptr.data(), csr.in_code.data(), num_offsets},
            DeviceCodedRows{csr.out_ptr.data(), csr.out_code.data(), num_offsets}};
  }
  const DenseTableArrays& tables = static_cast<const DenseTables&>(map).arrays();
  return {DeviceDenseRows{tables.in_table.data(), num_offsets},
          DeviceDenseRows{tables.out_table.data(), num_offsets}};
}

// The layouts refuse maps of 2^31 pairs.
WindowRange WindowsOf(const BufferPass& pass, const LaunchOffsets& range) {
  WindowRange launch;
  launch.first = range.first;
  launch.count = range.count;
  for (int i = 0; i < range.count; ++i) {
    const PairWindow& window = pass.windows[range.first + i];
    launch.windows[i] = {static_cast<int32_t>(window.begin), static_cast<int32_t>(window.end),
                         window.base - window.begin};
  }
  return launch;
}

// One forward pass.
class Run {
 public:
  Run(const GatherGemmScatterCudaPlan& plan, const PreparedMap& map, const ForwardArgs& args,
      const Workspace& workspace, const ExecutionContext& context)
      : plan_(plan),
        schedule_(plan.schedule()),
        sides_(SidesOf(map, plan.rule().layout)),
        num_inputs_(map.map().num_inputs()),
        num_outputs_(map.map().num_outputs()),
        c_in_(plan.shape().c_in),
        c_out_(plan.shape().c_out),
        precision_(plan.shape().types.precision),
        dtype_(plan.shape().types.input),
        element_(SizeOf(dtype_)),
        args_(args),
        gather_(workspace.Get<char>(plan.gather_slot())),
        scatter_(workspace.Get<char>(plan.scatter_slot())),
        copied_weights_(plan.weights_slot() < 0 ? nullptr
                                                : workspace.Get<char>(plan.weights_slot())),
        accumulator_(plan.accumulator_slot() < 0 ? nullptr
                                                 : workspace.Get<float>(plan.accumulator_slot())),
        context_(context) {}

  absl::Status Execute() {
    VOXCONV_RETURN_IF_ERROR(CopyWeights());
    if (schedule_.passes.empty()) return WithoutPairs();
    for (size_t pass = 0; pass < schedule_.passes.size(); ++pass) {
      VOXCONV_RETURN_IF_ERROR(Gather(pass));
      VOXCONV_RETURN_IF_ERROR(Multiply(pass));
      VOXCONV_RETURN_IF_ERROR(Scatter(pass));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CopyWeights() const {
    if (copied_weights_ == nullptr) return absl::OkStatus();
    const StageScope stage(context_, Stage::kGather);
    return CopyMatricesCuda(plan_.copied_weights(), c_in_ * c_out_ * element_, args_.weights.data,
                            copied_weights_, context_);
  }

  absl::Status WithoutPairs() const {
    if (schedule_.identity_offset >= 0) {
      const StageScope stage(context_, Stage::kGemm);
      return AsCuda(context_).gemm().Run(Identity(), context_);
    }
    const StageScope stage(context_, Stage::kScatter);
    return context_.backend->FillBytes(args_.output.data, 0, args_.output.bytes(),
                                       *context_.stream);
  }

  absl::Status Gather(size_t index) const {
    const BufferPass& pass = schedule_.passes[index];
    const StageScope stage(context_, Stage::kGather);
    VOXCONV_RETURN_IF_ERROR(ClearPaddingCuda(pass.padding, c_in_ * element_, gather_, context_));
    const MoveShape shape =
        plan_.GatherShape(num_inputs_, AddressOf(args_.input.data) | AddressOf(gather_));
    const bool by_offset = plan_.rule().order == MoveOrder::kWeight;
    for (const LaunchOffsets& range : plan_.gathers()[index]) {
      if (plan_.rule().order == MoveOrder::kTile) {
        VOXCONV_RETURN_IF_ERROR(TileGatherCuda(sides_.in, args_.input.data, gather_, shape,
                                               WindowsOf(pass, range), context_));
        continue;
      }
      VOXCONV_RETURN_IF_ERROR(GatherCuda(sides_.in, args_.input.data, gather_, shape,
                                         WindowsOf(pass, range), by_offset, context_));
    }
    return absl::OkStatus();
  }

  // The identity offset's rows are the features themselves (TorchSparse 4.2.1). Its product is the
  // sum to start from.
  GemmArgs Identity() const {
    GemmArgs gemm{.m = num_outputs_, .n = c_out_, .k = c_in_};
    gemm.a = args_.input.data;
    gemm.b = WeightsAt(args_.weights.data, schedule_.identity_offset);
    gemm.c = accumulator_ != nullptr ? accumulator_ : args_.output.data;
    gemm.precision = precision_;
    gemm.c_dtype = accumulator_ != nullptr ? DType::kF32 : dtype_;
    return gemm;
  }

  GemmArgs ProductOf(const Matmul& matmul) const {
    const BatchedWeights weights = plan_.WeightsOf(matmul);
    GemmArgs gemm{.m = matmul.padded_rows, .n = c_out_, .k = c_in_};
    gemm.a = gather_ + matmul.base * c_in_ * element_;
    gemm.b = WeightsAt(weights.copied ? copied_weights_ : args_.weights.data, weights.first);
    gemm.c = scatter_ + matmul.base * c_out_ * element_;
    gemm.precision = precision_;
    gemm.c_dtype = dtype_;
    gemm.batch = static_cast<int64_t>(matmul.offsets.size());
    gemm.stride_a = matmul.padded_rows * c_in_;
    gemm.stride_b = weights.stride * c_in_ * c_out_;
    gemm.stride_c = matmul.padded_rows * c_out_;
    return gemm;
  }

  const void* WeightsAt(const void* matrices, int64_t index) const {
    return static_cast<const char*>(matrices) + index * c_in_ * c_out_ * element_;
  }

  // On several streams each product goes to the one with the fewest rows so far.
  absl::Status Multiply(size_t index) const {
    const StageScope stage(context_, Stage::kGemm);
    std::vector<GemmArgs> products;
    if (index == 0 && schedule_.identity_offset >= 0) products.push_back(Identity());
    if (plan_.ragged()) VOXCONV_RETURN_IF_ERROR(MultiplyRagged(index));
    for (const Matmul& matmul : schedule_.passes[index].matmuls) {
      if (!plan_.ragged()) products.push_back(ProductOf(matmul));
    }
    if (products.empty()) return absl::OkStatus();
    StreamFork fork(context_);
    VOXCONV_RETURN_IF_ERROR(
        fork.Open(std::min(plan_.cuda().streams, static_cast<int>(products.size()))));
    std::vector<int64_t> rows(fork.size());
    for (const GemmArgs& product : products) {
      const auto least = std::min_element(rows.begin(), rows.end());
      *least += product.m * product.batch;
      const int branch = static_cast<int>(least - rows.begin());
      VOXCONV_RETURN_IF_ERROR(AsCuda(context_).gemm().Run(product, fork.branch(branch)));
    }
    return fork.Join();
  }

  // All matmuls of a pass by one launch, or by a few if there are very many offsets.
  absl::Status MultiplyRagged(size_t index) const {
    const RaggedOperands operands{.rows = gather_,
                                  .weights = args_.weights.data,
                                  .products = scatter_,
                                  .c_in = c_in_,
                                  .c_out = c_out_,
                                  .precision = precision_};
    RaggedSegments segments;
    int32_t blocks = 0;
    const auto flush = [&]() -> absl::Status {
      segments.first_block[segments.count] = blocks;
      VOXCONV_RETURN_IF_ERROR(RaggedProductCuda(segments, operands, context_));
      segments.count = 0;
      blocks = 0;
      return absl::OkStatus();
    };
    for (const Matmul& matmul : schedule_.passes[index].matmuls) {
      if (segments.count == RaggedSegments::kMax) VOXCONV_RETURN_IF_ERROR(flush());
      const int i = segments.count++;
      segments.offset[i] = matmul.offsets.front();
      segments.first_block[i] = blocks;
      segments.begin[i] = matmul.base;
      segments.end[i] = matmul.base + matmul.padded_rows;
      blocks += static_cast<int32_t>((matmul.padded_rows + kRaggedRows - 1) / kRaggedRows);
    }
    return flush();
  }

  // Adds to the f32 sum, which the first call starts unless the identity's product is in it.
  absl::Status ScatterAtomically(size_t index) {
    const bool rounds = accumulator_ != nullptr;
    float* sum = rounds ? accumulator_ : args_.output.f32();
    if (scatters_done_ == 0 && schedule_.identity_offset < 0) {
      VOXCONV_RETURN_IF_ERROR(context_.backend->FillBytes(
          sum, 0, num_outputs_ * c_out_ * static_cast<int64_t>(sizeof(float)), *context_.stream));
    }
    const MoveShape shape =
        plan_.ScatterShape(num_outputs_, AddressOf(args_.output.data) | AddressOf(scatter_));
    for (const LaunchOffsets& range : plan_.scatters()[index]) {
      VOXCONV_RETURN_IF_ERROR(AtomicScatterCuda(sides_.out, scatter_, dtype_, sum, shape,
                                                WindowsOf(schedule_.passes[index], range),
                                                context_));
      ++scatters_done_;
    }
    if (!rounds || scatters_done_ < plan_.num_scatters()) return absl::OkStatus();
    const ConstTensorView whole{sum, num_outputs_, c_out_, DType::kF32, args_.output.device};
    return context_.backend->tensor_ops().Convert(whole, args_.output, context_);
  }

  absl::Status Scatter(size_t index) {
    const StageScope stage(context_, Stage::kScatter);
    if (plan_.adds_atomically()) return ScatterAtomically(index);
    const MoveShape shape =
        plan_.ScatterShape(num_outputs_, AddressOf(args_.output.data) | AddressOf(scatter_));
    for (const LaunchOffsets& range : plan_.scatters()[index]) {
      if (plan_.rule().order == MoveOrder::kTile) {
        VOXCONV_RETURN_IF_ERROR(TileScatterCuda(sides_.out, scatter_, dtype_, NextSums(), shape,
                                                WindowsOf(schedule_.passes[index], range),
                                                context_));
        continue;
      }
      VOXCONV_RETURN_IF_ERROR(ScatterCuda(sides_.out, scatter_, dtype_, NextSums(), shape,
                                          WindowsOf(schedule_.passes[index], range), context_));
    }
    return absl::OkStatus();
  }

  // The sum so far stays in the accumulator, where there is one, until the last launch.
  ScatterSums NextSums() {
    ScatterSums sums;
    if (scatters_done_ > 0 || schedule_.identity_offset >= 0) {
      sums.from_accumulator = accumulator_;
      if (accumulator_ == nullptr) sums.from_output = args_.output.data;
    }
    ++scatters_done_;
    if (accumulator_ != nullptr && scatters_done_ < plan_.num_scatters()) {
      sums.to_accumulator = accumulator_;
    } else {
      sums.to_output = args_.output.data;
    }
    return sums;
  }

  const GatherGemmScatterCudaPlan& plan_;
  const Schedule& schedule_;
  const MapSides sides_;
  const int64_t num_inputs_, num_outputs_;
  const int64_t c_in_, c_out_;
  const Precision precision_;
  const DType dtype_;  // of features and partial products
  const int64_t element_;
  const ForwardArgs& args_;
  char* const gather_;
  char* const scatter_;
  char* const copied_weights_;  // null: none
  float* const accumulator_;    // null: none
  const ExecutionContext& context_;
  int64_t scatters_done_ = 0;
};

class GatherGemmScatterCuda final : public GatherGemmScatter {
 public:
  explicit GatherGemmScatterCuda(Options options)
      : GatherGemmScatter(std::move(options), CudaPositionLayouts()) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = UniformTypes(kGatherGemmScatterName, shape),
            .deterministic = move().order != MoveOrder::kWeight || cuda().offsets_per_launch == 1,
            .rounds_partial_sums = shape.types.output != shape.types.accumulate};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(Schedule schedule, ScheduleOf(map, shape));
    return std::make_unique<GatherGemmScatterCudaPlan>(std::move(schedule), map.map(), shape,
                                                       move(), cuda(), ragged(), context);
  }

  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& own = static_cast<const GatherGemmScatterCudaPlan&>(plan);
    return Run(own, map, args, workspace, context).Execute();
  }
};

}  // namespace

absl::Status RegisterGatherGemmScatterCuda(Registry& registry) {
  return registry.dataflows().Implement(kGatherGemmScatterName, BackendKind::kCuda,
                                        &MakeGatherGemmScatter<GatherGemmScatterCuda>);
}

}  // namespace voxconv
