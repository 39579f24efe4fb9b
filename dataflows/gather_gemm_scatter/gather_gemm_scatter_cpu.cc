// SPDX-License-Identifier: Apache-2.0
// Deterministic: every output element is summed in the order identity offset, passes, ascending
// offsets, whichever thread does it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/gather_gemm_scatter/gather_gemm_scatter.h"
#include "voxconv/dataflows/gather_gemm_scatter/map_rows_cpu.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/sum_rows_cpu.h"

namespace voxconv {
namespace {

// Rows of features a task moves, and rows of a batched matrix a task multiplies.
constexpr int64_t kRowsPerMove = 512;
constexpr int64_t kRowsPerMultiply = 1024;

// One forward pass; Rows is DenseRows or CodedRows.
template <typename Rows>
class Run {
 public:
  Run(const GatherGemmScatterPlan& plan, const KernelMap& map, const Rows& in_rows,
      const Rows& out_rows, const ForwardArgs& args, float* gather, float* scatter,
      const ExecutionContext& context)
      : schedule_(plan.schedule()),
        rule_(plan.rule()),
        in_rows_(in_rows),
        out_rows_(out_rows),
        num_inputs_(map.num_inputs()),
        num_outputs_(map.num_outputs()),
        c_in_(plan.shape().c_in),
        c_out_(plan.shape().c_out),
        input_(args.input.f32()),
        weights_(args.weights.f32()),
        output_(args.output.f32()),
        gather_(gather),
        scatter_(scatter),
        context_(context) {}

  void Execute() {
    MultiplyIdentity();
    for (const BufferPass& pass : schedule_.passes) {
      Gather(pass);
      Multiply(pass);
      Scatter(pass);
    }
    if (!output_started_) ClearOutput();
  }

 private:
  const float* WeightsOf(int k) const { return weights_ + k * c_in_ * c_out_; }

  // The identity offset's rows are the features themselves (TorchSparse 4.2.1).
  void MultiplyIdentity() {
    if (schedule_.identity_offset < 0) return;
    StageScope stage(context_, Stage::kGemm);
    Sgemm(context_, num_outputs_, c_out_, c_in_, input_, WeightsOf(schedule_.identity_offset),
          ProductMode::kOverwrite, output_);
    output_started_ = true;
  }

  void ClearOutput() {
    StageScope stage(context_, Stage::kScatter);
    ParallelRanges(context_, num_outputs_, kRowsPerMove, [&](int64_t begin, int64_t end) {
      std::memset(output_ + begin * c_out_, 0, (end - begin) * c_out_ * sizeof(float));
    });
    output_started_ = true;
  }

  // body(first, width) for every tile of `channels`.
  template <typename Body>
  static void ForTiles(int64_t tile, int64_t channels, const Body& body) {
    tile = MoveRule::TileOf(tile, channels);
    for (int64_t first = 0; first < channels; first += tile) {
      body(first, std::min(tile, channels - first));
    }
  }

  void Gather(const BufferPass& pass) const {
    StageScope stage(context_, Stage::kGather);
    ParallelRanges(context_, static_cast<int64_t>(pass.padding.size()), 1, [&](int64_t i, int64_t) {
      const PaddingRun& run = pass.padding[i];
      std::memset(gather_ + run.base * c_in_, 0, run.rows * c_in_ * sizeof(float));
    });
    if (rule_.order == MoveOrder::kWeight) {
      GatherByOffset(pass);
    } else {
      GatherByInput(pass);
    }
  }

  // Input-stationary: a tile of an input row is read once and written to all its positions.
  void GatherByInput(const BufferPass& pass) const {
    ParallelRanges(context_, num_inputs_, kRowsPerMove, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = input_ + row * c_in_;
        ForTiles(rule_.gather_tile, c_in_, [&](int64_t first, int64_t width) {
          in_rows_.ForEach(row, pass.offsets, [&](int k, int64_t position) {
            const PairWindow& window = pass.windows[k];
            if (!window.Contains(position)) return;
            float* to = gather_ + window.RowOf(position) * c_in_;
            std::memcpy(to + first, from + first, width * sizeof(float));
          });
        });
      }
    });
  }

  void GatherByOffset(const BufferPass& pass) const {
    for (const int k : pass.offsets) {
      const PairWindow& window = pass.windows[k];
      ParallelRanges(context_, num_inputs_, kRowsPerMove, [&](int64_t begin, int64_t end) {
        ForTiles(rule_.gather_tile, c_in_, [&](int64_t first, int64_t width) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t position = in_rows_.Find(row, k);
            if (!window.Contains(position)) continue;
            float* to = gather_ + window.RowOf(position) * c_in_;
            std::memcpy(to + first, input_ + row * c_in_ + first, width * sizeof(float));
          }
        });
      });
    }
  }

  void Multiply(const BufferPass& pass) const {
    StageScope stage(context_, Stage::kGemm);
    for (const Matmul& matmul : pass.matmuls) {
      const int64_t blocks = (matmul.padded_rows + kRowsPerMultiply - 1) / kRowsPerMultiply;
      const int64_t tasks = blocks * static_cast<int64_t>(matmul.offsets.size());
      ParallelRanges(context_, tasks, 1, [&](int64_t task, int64_t) {
        const int64_t matrix = task / blocks;
        const int64_t first = task % blocks * kRowsPerMultiply;
        const int64_t row = matmul.base + matrix * matmul.padded_rows + first;
        SgemmSerial(std::min(kRowsPerMultiply, matmul.padded_rows - first), c_out_, c_in_,
                    gather_ + row * c_in_, WeightsOf(matmul.offsets[matrix]),
                    ProductMode::kOverwrite, scatter_ + row * c_out_);
      });
    }
  }

  void Scatter(const BufferPass& pass) {
    if (rule_.order == MoveOrder::kWeight) {
      if (!output_started_) ClearOutput();
      StageScope stage(context_, Stage::kScatter);
      ScatterByOffset(pass);
    } else {
      StageScope stage(context_, Stage::kScatter);
      ScatterByOutput(pass);
    }
    output_started_ = true;
  }

  // Output-stationary: the partial sums of a tile of an output row are added in registers and
  // written once; rows without any are zeroed by the first pass.
  void ScatterByOutput(const BufferPass& pass) const {
    ParallelRanges(context_, num_outputs_, kRowsPerMove, [&](int64_t begin, int64_t end) {
      std::vector<const float*> partial_sums;
      for (int64_t row = begin; row < end; ++row) {
        ForTiles(rule_.scatter_tile, c_out_, [&](int64_t first, int64_t width) {
          partial_sums.clear();
          out_rows_.ForEach(row, pass.offsets, [&](int k, int64_t position) {
            const PairWindow& window = pass.windows[k];
            if (!window.Contains(position)) return;
            partial_sums.push_back(scatter_ + window.RowOf(position) * c_out_ + first);
          });
          SumRows(partial_sums, output_started_, width, output_ + row * c_out_ + first);
        });
      }
    });
  }

  // An output row occurs at most once an offset, so that rows are independent within one.
  void ScatterByOffset(const BufferPass& pass) const {
    for (const int k : pass.offsets) {
      const PairWindow& window = pass.windows[k];
      ParallelRanges(context_, num_outputs_, kRowsPerMove, [&](int64_t begin, int64_t end) {
        ForTiles(rule_.scatter_tile, c_out_, [&](int64_t first, int64_t width) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t position = out_rows_.Find(row, k);
            if (!window.Contains(position)) continue;
            const float* from = scatter_ + window.RowOf(position) * c_out_ + first;
            SumRows({&from, 1}, /*accumulate=*/true, width, output_ + row * c_out_ + first);
          }
        });
      });
    }
  }

  const Schedule& schedule_;
  const MoveRule& rule_;
  const Rows in_rows_, out_rows_;
  const int64_t num_inputs_, num_outputs_;
  const int64_t c_in_, c_out_;
  const float* const input_;
  const float* const weights_;
  float* const output_;
  float* const gather_;
  float* const scatter_;
  const ExecutionContext& context_;
  bool output_started_ = false;  // the output holds a sum to add to
};

class GatherGemmScatterCpu final : public GatherGemmScatter {
 public:
  explicit GatherGemmScatterCpu(Options options)
      : GatherGemmScatter(std::move(options), CpuPositionLayouts()) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    if (cuda() != CudaMoveRule()) {
      return {.support = Support::No(
                  absl::StrCat(kGatherGemmScatterName,
                               " on the CPU has no vector_bytes, offsets_per_launch and streams to "
                               "choose"))};
    }
    return {.support = F32Only(kGatherGemmScatterName, shape)};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap& map,
                                                       const ConvShape& shape,
                                                       const ExecutionContext&) const override {
    VOXCONV_ASSIGN_OR_RETURN(Schedule schedule, ScheduleOf(map, shape));
    return std::make_unique<GatherGemmScatterPlan>(std::move(schedule), map.map(), shape, move(),
                                                   absl::StrCat("products, ", SgemmTarget()));
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& map,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& plan = static_cast<const GatherGemmScatterPlan&>(base_plan);
    const int num_offsets = map.map().num_offsets();
    float* gather = workspace.Get<float>(plan.gather_slot());
    float* scatter = workspace.Get<float>(plan.scatter_slot());
    if (plan.rule().layout == PositionLayout::kCodedCsr) {
      const CodedCsrArrays& csr = static_cast<const CodedCsr&>(map).arrays();
      const CodedRows in{csr.in_ptr.data(), csr.in_code.data(), num_offsets};
      const CodedRows out{csr.out_ptr.data(), csr.out_code.data(), num_offsets};
      Run<CodedRows>(plan, map.map(), in, out, args, gather, scatter, context).Execute();
    } else {
      const DenseTableArrays& tables = static_cast<const DenseTables&>(map).arrays();
      const DenseRows in{tables.in_table.data(), num_offsets};
      const DenseRows out{tables.out_table.data(), num_offsets};
      Run<DenseRows>(plan, map.map(), in, out, args, gather, scatter, context).Execute();
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RegisterGatherGemmScatter(Registry& registry) {
  return registry.dataflows().Register(DescribeGatherGemmScatter(), BackendKind::kCpu,
                                       &MakeGatherGemmScatter<GatherGemmScatterCpu>);
}

}  // namespace voxconv
