#include "dataflows/gather_gemm_scatter/forward_cuda.h"

#include <algorithm>
#include <vector>

#include "backends/cuda/cuda_gemm.h"
#include "backends/cuda/cuda_vector.h"
#include "backends/cuda/stream_fork.h"
#include "dataflows/gather_gemm_scatter/move_cuda.h"
#include "dataflows/gather_gemm_scatter/plan_cuda.h"

namespace voxconv {
namespace {

// Both sides of the map as the kernels read them.
struct MapSides {
  DeviceRows in, out;
};

MapSides SidesOf(const KernelMap& map) {
  const int num_offsets = map.num_offsets();
  if (map.layout().layout == MapLayout::kCodedCsr) {
    const CodedCsr& csr = map.As<CodedCsr>();
    return {DeviceCodedRows{csr.in_ptr.data(), csr.in_code.data(), num_offsets},
            DeviceCodedRows{csr.out_ptr.data(), csr.out_code.data(), num_offsets}};
  }
  const DenseTables& tables = map.As<DenseTables>();
  return {DeviceDenseRows{tables.in_table.data(), num_offsets},
          DeviceDenseRows{tables.out_table.data(), num_offsets}};
}

// The layouts refuse maps of 2^31 pairs.
WindowRange WindowsOf(const Pass& pass, const OffsetRange& range) {
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

// One Forward call.
class Run {
 public:
  Run(const GatherGemmScatterCudaPlan& plan, const KernelMap& map, const ForwardArgs& args,
      const Workspace& workspace, const ExecutionContext& context)
      : plan_(plan),
        schedule_(plan.schedule()),
        sides_(SidesOf(map)),
        num_inputs_(map.num_inputs()),
        num_outputs_(map.num_outputs()),
        c_in_(plan.shape().c_in),
        c_out_(plan.shape().c_out),
        dtype_(plan.shape().dtype),
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
    const Pass& pass = schedule_.passes[index];
    const StageScope stage(context_, Stage::kGather);
    VOXCONV_RETURN_IF_ERROR(ClearPaddingCuda(pass.padding, c_in_ * element_, gather_, context_));
    const MoveShape shape =
        plan_.GatherShape(num_inputs_, AddressOf(args_.input.data) | AddressOf(gather_));
    const bool by_offset = plan_.rule().order == MoveOrder::kWeight;
    for (const OffsetRange& range : plan_.gathers()[index]) {
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
    gemm.dtype = dtype_;
    gemm.c_dtype = accumulator_ != nullptr ? DType::kF32 : dtype_;
    return gemm;
  }

  GemmArgs ProductOf(const Matmul& matmul) const {
    const BatchedWeights weights = plan_.WeightsOf(matmul);
    GemmArgs gemm{.m = matmul.padded_rows, .n = c_out_, .k = c_in_};
    gemm.a = gather_ + matmul.base * c_in_ * element_;
    gemm.b = WeightsAt(weights.copied ? copied_weights_ : args_.weights.data, weights.first);
    gemm.c = scatter_ + matmul.base * c_out_ * element_;
    gemm.dtype = dtype_;
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
    for (const Matmul& matmul : schedule_.passes[index].matmuls) {
      products.push_back(ProductOf(matmul));
    }
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

  absl::Status Scatter(size_t index) {
    const StageScope stage(context_, Stage::kScatter);
    const MoveShape shape =
        plan_.ScatterShape(num_outputs_, AddressOf(args_.output.data) | AddressOf(scatter_));
    for (const OffsetRange& range : plan_.scatters()[index]) {
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
  const DType dtype_;
  const int64_t element_;
  const ForwardArgs& args_;
  char* const gather_;
  char* const scatter_;
  char* const copied_weights_;  // null: none
  float* const accumulator_;    // null: none
  const ExecutionContext& context_;
  int64_t scatters_done_ = 0;
};

}  // namespace

absl::Status GatherGemmScatterCuda(const GatherGemmScatterPlan& plan, const KernelMap& map,
                                   const ForwardArgs& args, const Workspace& workspace,
                                   const ExecutionContext& context) {
  const auto& own = static_cast<const GatherGemmScatterCudaPlan&>(plan);
  return Run(own, map, args, workspace, context).Execute();
}

}  // namespace voxconv
