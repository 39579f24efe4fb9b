// SPDX-License-Identifier: Apache-2.0
// A complete dataflow plugin that reads a layout of its own, and computes its own weight gradient.
//
// The layout lists, for each output row, its pairs one after the other: a kernel offset and an
// input row. A row then reads no entry for the offsets that it does not have. Simple and slow;
// meant to be copied and replaced part by part.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/plugin_api.h"
#include "voxconv/core/status_macros.h"

namespace {

constexpr char kName[] = "row_lists";
constexpr char kLayout[] = "row_lists";  // MapNeed::layout

struct Entry {
  int32_t offset, input;
};

// The layout. The pairs of output row q are entries[begin[q]] .. entries[begin[q + 1] - 1], by
// ascending offset.
class RowLists final : public voxconv::PreparedMap {
 public:
  RowLists(const voxconv::KernelMap& map, voxconv::Array<int64_t> begin,
           voxconv::Array<Entry> entries)
      : PreparedMap(map.WithoutArrays()), begin_(std::move(begin)), entries_(std::move(entries)) {}

  absl::Span<const Entry> row(int64_t q) const {
    return entries_.host().subspan(begin_.data()[q], begin_.data()[q + 1] - begin_.data()[q]);
  }
  int64_t bytes() const override { return begin_.bytes() + entries_.bytes(); }

  // verify calls this: the layout must hold as many pairs as the map, all of them in range.
  absl::Status Validate(const voxconv::ExecutionContext& /*context*/) const override {
    if (entries_.size() != map().num_pairs()) {
      return voxconv::CheckArraySize("entries", entries_.size(), map().num_pairs());
    }
    for (int64_t q = 0; q < map().num_outputs(); ++q) {
      for (const Entry& entry : row(q)) {
        if (entry.offset < 0 || entry.offset >= map().num_offsets() || entry.input < 0 ||
            entry.input >= map().num_inputs()) {
          return voxconv::InvalidMap(absl::StrCat("row ", q, " has an entry out of range"));
        }
      }
    }
    return absl::OkStatus();
  }

  // verify compares these with the pairs that the layout was made of. Rows ascend, so each offset's
  // pairs come out in canonical order.
  absl::StatusOr<voxconv::KernelMap> ToPairs(
      const voxconv::ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(auto pairs, voxconv::PairBuffers::Allocate(entries_.size(), context));
    std::vector<int64_t> next = map().offset_ptr();
    for (int64_t q = 0; q < map().num_outputs(); ++q) {
      for (const Entry& entry : row(q)) {
        pairs.in.data()[next[entry.offset]] = entry.input;
        pairs.out.data()[next[entry.offset]++] = static_cast<int32_t>(q);
      }
    }
    return map().WithStorage(voxconv::PairList(std::move(pairs)));
  }

 private:
  voxconv::Array<int64_t> begin_;  // [N_out + 1]
  voxconv::Array<Entry> entries_;  // [pairs]
};

class RowListsDataflow final : public voxconv::Dataflow {
 public:
  explicit RowListsDataflow(voxconv::Options options) : options_(std::move(options)) {}

  const voxconv::Options& options() const override { return options_; }

 protected:
  // The input gradient is left to voxconv, which runs DoForward on the transposed map.
  bool Has(voxconv::Pass pass) const override { return pass != voxconv::Pass::kInputGrad; }

  voxconv::Capability DoCapability(voxconv::Pass /*pass*/,
                                   const voxconv::ConvShape& shape) const override {
    return {.support = voxconv::F32Only(kName, shape)};
  }

  // The forward pass reads the layout, which is made of a neighbour table. The weight gradient
  // reads pairs as they are.
  voxconv::MapNeed DoNeededMap(voxconv::Pass pass,
                               const voxconv::ConvShape& /*shape*/) const override {
    if (pass == voxconv::Pass::kWeightGrad) return {.form = voxconv::MapForm::kPairs};
    return {.form = voxconv::MapForm::kNeighbourTable, .layout = kLayout};
  }

  // Once for all layers with the same map.
  absl::StatusOr<std::shared_ptr<const voxconv::PreparedMap>> DoPrepare(
      const voxconv::KernelMap& map, const voxconv::MapNeed& /*need*/,
      const voxconv::ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
    VOXCONV_ASSIGN_OR_RETURN(auto begin,
                             voxconv::AllocateArray<int64_t>(map.num_outputs() + 1, context));
    VOXCONV_ASSIGN_OR_RETURN(auto entries, voxconv::AllocateArray<Entry>(map.num_pairs(), context));
    const int32_t* table = map.table().table.data();
    int64_t next = 0;
    for (int64_t q = 0; q < map.num_outputs(); ++q) {
      begin.data()[q] = next;
      for (int32_t k = 0; k < map.num_offsets(); ++k) {
        const int32_t input = table[q * map.num_offsets() + k];
        if (input >= 0) entries.data()[next++] = {k, input};
      }
    }
    begin.data()[map.num_outputs()] = next;
    return std::make_shared<const RowLists>(map, std::move(begin), std::move(entries));
  }

  // Nothing to decide and no scratch memory. The counters are known by formula.
  absl::StatusOr<std::unique_ptr<voxconv::DataflowPlan>> DoPlan(
      voxconv::Pass pass, const voxconv::PreparedMap& map, const voxconv::ConvShape& shape,
      const voxconv::ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    return std::make_unique<Plan>(pass, map, shape);
  }

  // y[q] = sum of x[p] * w[k] over the entries (k, p) of row q.
  absl::Status DoForward(const voxconv::DataflowPlan& plan, const voxconv::PreparedMap& map,
                         const voxconv::ForwardArgs& args, const voxconv::Workspace& /*workspace*/,
                         const voxconv::ExecutionContext& context) const override {
    const voxconv::StageScope stage(context, voxconv::Stage::kFused);
    const auto& lists = static_cast<const RowLists&>(map);
    const int64_t c_in = plan.shape().c_in, c_out = plan.shape().c_out;
    // Ranges depend on the grain alone, so any number of threads gives the same bits.
    voxconv::ParallelRanges(context, args.output.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        float* y = args.output.f32() + q * c_out;
        std::fill_n(y, c_out, 0.0f);
        for (const Entry& entry : lists.row(q)) {
          AddProduct(args.input.f32() + entry.input * c_in,
                     args.weights.f32() + entry.offset * c_in * c_out, c_in, c_out, y);
        }
      }
    });
    return absl::OkStatus();
  }

  // dw[k] = sum of transposed(x[p]) * dy[q] over the pairs of offset k, in their order.
  absl::Status DoWeightGrad(const voxconv::DataflowPlan& plan, const voxconv::PreparedMap& map,
                            const voxconv::WeightGradArgs& args,
                            const voxconv::Workspace& /*workspace*/,
                            const voxconv::ExecutionContext& context) const override {
    const voxconv::StageScope stage(context, voxconv::Stage::kFused);
    const voxconv::KernelMap& pairs = map.map();
    const int64_t c_in = plan.shape().c_in, c_out = plan.shape().c_out;
    voxconv::ParallelRanges(context, pairs.num_offsets(), 1, [&](int64_t k, int64_t) {
      float* dw = args.weights_grad.f32() + k * c_in * c_out;
      std::fill_n(dw, c_in * c_out, 0.0f);
      for (int64_t i = pairs.offset_ptr()[k]; i < pairs.offset_ptr()[k + 1]; ++i) {
        const float* x = args.input.f32() + pairs.pairs().in.data()[i] * c_in;
        const float* dy = args.output_grad.f32() + pairs.pairs().out.data()[i] * c_out;
        for (int64_t ci = 0; ci < c_in; ++ci) {
          for (int64_t co = 0; co < c_out; ++co) dw[ci * c_out + co] += x[ci] * dy[co];
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kGrain = 1024;  // output rows of a task
  static constexpr int64_t kFloatBytes = sizeof(float);

  class Plan final : public voxconv::DataflowPlan {
   public:
    Plan(voxconv::Pass pass, const voxconv::PreparedMap& prepared,
         const voxconv::ConvShape& shape) {
      const voxconv::KernelMap& map = prepared.map();
      const bool weight_grad = pass == voxconv::Pass::kWeightGrad;
      const int64_t weights = map.num_offsets() * shape.c_in * shape.c_out;
      work_.true_pairs = work_.padded_pairs = map.num_pairs();
      work_.launches = 1;
      // A pair reads one row of the input, and weights or one row of the output's gradient.
      const int64_t per_pair = shape.c_in + (weight_grad ? shape.c_out : shape.c_in * shape.c_out);
      work_.bytes_read = prepared.bytes() + map.num_pairs() * per_pair * kFloatBytes;
      work_.bytes_written = (weight_grad ? weights : map.num_outputs() * shape.c_out) * kFloatBytes;
    }
  };

  static void AddProduct(const float* x, const float* w, int64_t c_in, int64_t c_out, float* y) {
    for (int64_t ci = 0; ci < c_in; ++ci) {
      for (int64_t co = 0; co < c_out; ++co) y[co] += x[ci] * w[ci * c_out + co];
    }
  }

  voxconv::Options options_;
};

absl::Status RegisterRowLists(voxconv::Registry& registry) {
  return registry.dataflows().Register(
      {.name = kName,
       .summary = "walks a list of pairs for each output row",
       .source = "the plugin guide's example"},
      voxconv::BackendKind::kCpu,
      [](voxconv::Options values) -> absl::StatusOr<std::unique_ptr<const voxconv::Dataflow>> {
        return std::make_unique<RowListsDataflow>(std::move(values));
      });
}

}  // namespace

VOXCONV_PLUGIN(row_lists, RegisterRowLists)
