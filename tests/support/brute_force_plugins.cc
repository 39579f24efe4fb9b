// SPDX-License-Identifier: Apache-2.0
#include "tests/support/brute_force_plugins.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "voxconv/core/backend_support.h"

namespace voxconv {
namespace {

Coordinate Moved(const Coordinate& c, const Int3& d, int sign) {
  return {c.b, c.x + sign * d.x, c.y + sign * d.y, c.z + sign * d.z};
}

class BruteForceIndex final : public MapIndex {
 public:
  explicit BruteForceIndex(const CoordinateSet& inputs) {
    for (int64_t i = 0; i < inputs.size(); ++i) {
      rows_[inputs.rows().host()[i]] = static_cast<int32_t>(i);
    }
  }
  int64_t bytes() const override { return static_cast<int64_t>(rows_.size()) * 20; }
  int32_t Find(const Coordinate& c) const {
    const auto it = rows_.find(c);
    return it == rows_.end() ? -1 : it->second;
  }

 private:
  std::map<Coordinate, int32_t> rows_;
};

class BruteForceMapping final : public Mapping {
 public:
  explicit BruteForceMapping(Options options) : options_(std::move(options)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(const CoordinateSet& inputs,
                                                         const ExecutionContext&) const override {
    return std::make_unique<BruteForceIndex>(inputs);
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const int num_offsets = problem.geometry.num_offsets();
    const auto outputs = problem.outputs.rows().host();
    std::vector<int32_t> in, out, table(outputs.size() * num_offsets, -1);
    std::vector<int64_t> offset_ptr{0};
    for (int k = 0; k < num_offsets; ++k) {
      for (size_t q = 0; q < outputs.size(); ++q) {
        const int32_t p = static_cast<const BruteForceIndex&>(index).Find(
            Moved(outputs[q], problem.geometry.InputOffset(k), 1));
        if (p < 0) continue;
        in.push_back(p);
        out.push_back(static_cast<int32_t>(q));
        table[q * num_offsets + k] = p;
      }
      offset_ptr.push_back(static_cast<int64_t>(in.size()));
    }
    KernelMap::Storage storage;
    if (options_.GetEnum("emit") == "neighbour_table") {
      VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> entries, CopyToBackend<int32_t>(table, context));
      storage = NeighbourTable{.table = std::move(entries), .masks = {}};
    } else {
      PairBuffers pairs;
      VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in, context));
      VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out, context));
      storage = PairList(std::move(pairs));
    }
    return KernelMap(problem.inputs.size(), problem.outputs.size(), std::move(offset_ptr),
                     std::move(storage));
  }

 private:
  Options options_;
};

class BruteForcePlan final : public DataflowPlan {};

class BruteForceDataflow final : public Dataflow {
 public:
  explicit BruteForceDataflow(Options options)
      : options_(std::move(options)),
        takes_pairs_(options_.GetEnum("take") == "pairs"),
        fuses_epilogue_(options_.GetEnum("epilogue") == "fused"),
        strides_rows_(options_.GetEnum("rows") == "strided") {}
  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    Support support = F32Only("brute_force", shape);
    if (shape.c_in > 4096) support = Support::No("more than 4096 input channels");
    return {.support = std::move(support),
            .fuses_epilogue = fuses_epilogue_,
            .strides_rows = strides_rows_};
  }
  MapNeed DoNeededMap(Pass, const ConvShape&) const override {
    return {.form = takes_pairs_ ? MapForm::kPairs : MapForm::kNeighbourTable};
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap&, const ConvShape&,
                                                       const ExecutionContext&) const override {
    return std::make_unique<BruteForcePlan>();
  }

  absl::Status DoForward(const DataflowPlan&, const PreparedMap& prepared, const ForwardArgs& args,
                         const Workspace&, const ExecutionContext& context) const override {
    const StageScope scope(context, Stage::kFused);
    const KernelMap& map = prepared.map();
    VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
    if (Counters* counters = context.counters()) counters->true_pairs += map.num_pairs();
    for (int64_t row = 0; row < args.output.rows; ++row) {
      std::fill_n(args.output.f32() + row * args.output.row_stride, args.output.channels, 0.0f);
    }
    if (takes_pairs_) {
      const PairList& pairs = map.pairs();
      for (int k = 0; k < map.num_offsets(); ++k) {
        for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
          MultiplyAdd(args, k, pairs.in.data()[i], pairs.out.data()[i]);
        }
      }
    } else {
      const int32_t* table = map.table().table.data();
      for (int64_t q = 0; q < map.num_outputs(); ++q) {
        for (int k = 0; k < map.num_offsets(); ++k) {
          const int32_t p = table[q * map.num_offsets() + k];
          if (p >= 0) MultiplyAdd(args, k, p, q);
        }
      }
    }
    Finish(args);
    return absl::OkStatus();
  }

 private:
  static void Finish(const ForwardArgs& args) {
    const Epilogue& epilogue = args.epilogue;
    for (int64_t i = 0; i < args.output.rows * args.output.channels; ++i) {
      const int64_t row = i / args.output.channels, c = i % args.output.channels;
      float& y = args.output.f32()[row * args.output.row_stride + c];
      if (epilogue.scale != nullptr) y *= epilogue.scale[c];
      if (epilogue.shift != nullptr) y += epilogue.shift[c];
      if (epilogue.residual.data != nullptr) y += epilogue.residual.f32()[i];
      if (epilogue.relu) y = std::max(y, 0.0f);
    }
  }

  static void MultiplyAdd(const ForwardArgs& args, int64_t k, int64_t p, int64_t q) {
    const int64_t c_in = args.input.channels, c_out = args.output.channels;
    float* to = args.output.f32() + q * args.output.row_stride;
    for (int64_t i = 0; i < c_in; ++i) {
      const float x = args.input.f32()[p * args.input.row_stride + i];
      const float* w = args.weights.f32() + (k * c_in + i) * c_out;
      for (int64_t j = 0; j < c_out; ++j) to[j] += x * w[j];
    }
  }

  Options options_;
  bool takes_pairs_;
  bool fuses_epilogue_;
  bool strides_rows_;
};

class BruteForceOutputCoords final : public OutputCoords {
 public:
  explicit BruteForceOutputCoords(Options options) : options_(std::move(options)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                             const ConvGeometry& geometry,
                                             const ExecutionContext& context) const override {
    const Int3& stride = geometry.output_tensor_stride();
    const bool quantize =
        geometry.kind() == ConvKind::kStrided && geometry.params().rule == OutputRule::kQuantize;
    std::set<Coordinate> outputs;
    for (const Coordinate& p : inputs.rows().host()) {
      if (quantize) {
        outputs.insert({p.b, p.x - Modulo(p.x, stride.x), p.y - Modulo(p.y, stride.y),
                        p.z - Modulo(p.z, stride.z)});
        continue;
      }
      for (const Int3& offset : geometry.input_offsets()) {
        const Coordinate q = Moved(p, offset, -1);
        if (Modulo(q.x, stride.x) == 0 && Modulo(q.y, stride.y) == 0 &&
            Modulo(q.z, stride.z) == 0 && Within(geometry.params().output_bounds, q, stride)) {
          outputs.insert(q);
        }
      }
    }
    const std::vector<Coordinate> rows(outputs.begin(), outputs.end());
    return CoordinateSet::Create(rows, stride, context);
  }

 private:
  static bool Within(const std::optional<Box>& bounds, const Coordinate& q, const Int3& stride) {
    if (!bounds.has_value()) return true;
    const Int3 cell{q.x / stride.x, q.y / stride.y, q.z / stride.z};
    for (int axis = 0; axis < 3; ++axis) {
      if (cell[axis] < bounds->lo[axis] || cell[axis] > bounds->hi[axis]) return false;
    }
    return true;
  }
  // In 0..m-1, also for negative a.
  static int32_t Modulo(int32_t a, int32_t m) { return ((a % m) + m) % m; }

  Options options_;
};

template <typename Instance, typename Plugin>
absl::Status Register(PluginFamily<Plugin>& family, const OptionSchema& schema) {
  return family.Register({.name = "brute_force", .summary = "for tests", .options = schema},
                         BackendKind::kCpu,
                         [](Options options) -> absl::StatusOr<std::unique_ptr<const Plugin>> {
                           return std::make_unique<const Instance>(std::move(options));
                         });
}

}  // namespace

absl::Status RegisterBruteForce(Registry& registry) {
  OptionSchema emit, take;
  emit.Enum("emit", {"pairs", "neighbour_table"}, "pairs", "form of the map");
  take.Enum("take", {"pairs", "neighbour_table"}, "pairs", "form of the map");
  take.Enum("epilogue", {"after", "fused"}, "after", "who runs it: the caller, or Forward");
  take.Enum("rows", {"contiguous", "strided"}, "contiguous", "whether rows may have gaps");
  VOXCONV_RETURN_IF_ERROR(Register<BruteForceMapping>(registry.mappings(), emit));
  VOXCONV_RETURN_IF_ERROR(Register<BruteForceDataflow>(registry.dataflows(), take));
  return Register<BruteForceOutputCoords>(registry.output_coords(), {});
}

}  // namespace voxconv
