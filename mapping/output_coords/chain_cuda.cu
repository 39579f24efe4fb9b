// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/mapping/output_coords/expansion_level_cuda.h"
#include "voxconv/mapping/output_coords/output_coords_cuda.h"

namespace voxconv {
namespace {

// Rows that a level in the middle of a chain may be given room for without knowing that they are
// there: 256 MiB of them, or four times the rows the chain started from. Where the work grows with
// the room, as candidates in memory and the keys of a sort do, no more than it started from.
int64_t MaxGuess(ExpansionCuda expansion, int64_t inputs) {
  return expansion == ExpansionCuda::kFused ? std::max(int64_t{1} << 24, 4 * inputs) : inputs;
}

// Room without rows that a set may keep.
constexpr int64_t kMaxSpare = int64_t{16} << 20;

AxisRuleCuda MakeAxisRule(const CandidateRule& rule, const ConvGeometry& geometry, int axis) {
  const GeometryParams& params = geometry.params();
  AxisRuleCuda result{};
  result.quantize = geometry.kind() == ConvKind::kStrided && params.rule == OutputRule::kQuantize;
  result.step = rule.output_tensor_stride()[axis];
  result.low_bits = (result.step & (result.step - 1)) == 0 ? result.step - 1 : -1;
  const auto clamp = [](int64_t value) {
    return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
  };
  result.lo = clamp(rule.FirstWanted(axis));
  result.hi = clamp(rule.LastWanted(axis));
  result.count = result.quantize ? 1 : params.kernel[axis];
  if (result.quantize) return result;
  // The offset after the first along this axis, in the geometry's order: z fastest.
  const int next = axis == 2 ? 1 : axis == 1 ? params.kernel.z : params.kernel.y * params.kernel.z;
  result.first = geometry.InputOffset(0)[axis];
  if (result.count > 1) result.increment = geometry.InputOffset(next)[axis] - result.first;
  return result;
}

CellsCuda MakeCells(const Box& box, const Int3& step, int32_t num_batches) {
  CellsCuda cells{};
  cells.count = static_cast<uint64_t>(std::max(num_batches, 1));
  for (int axis = 0; axis < 3; ++axis) {
    cells.lo[axis] = box.lo[axis];
    cells.step[axis] = step[axis];
    cells.extent[axis] =
        static_cast<uint32_t>((int64_t{box.hi[axis]} - box.lo[axis]) / step[axis] + 1);
    cells.count *= cells.extent[axis];  // below 2^63: 18 bits an axis and 9 for the batch
  }
  return cells;
}

__global__ void ResetKernel(LevelInfoCuda* infos, int size) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= size) return;
  LevelInfoCuda& info = infos[i];
  info.size = 0;
  info.bad_row = LevelInfoCuda::kNoRow;
  for (int axis = 0; axis < 3; ++axis) {
    info.lo[axis] = INT32_MAX;
    info.hi[axis] = INT32_MIN;
  }
  info.last_batch = -1;
  info.unused = 0;
}

// Whether every input has one output, itself rounded down to the output's lattice. Rounding down in
// steps is rounding down at once, so that a chain of such levels can start from its first inputs at
// each of them.
bool OnlyQuantizes(const ConvGeometry& geometry) {
  return geometry.kind() == ConvKind::kStrided && geometry.params().rule == OutputRule::kQuantize &&
         !geometry.params().output_bounds.has_value();
}

absl::Status RunLevel(const ExpansionRuleCuda& rule, const ExpansionLevelCuda& level,
                      const ExecutionContext& context) {
  if (level.inputs.bound == 0) return absl::OkStatus();
  switch (rule.expansion) {
    case ExpansionCuda::kStaged:
      return StagedLevelCuda(level, context);
    case ExpansionCuda::kFused:
      return FusedLevelCuda(level, context);
    case ExpansionCuda::kAppended:
      return AppendedLevelCuda(level, context);
    case ExpansionCuda::kLocationTable:
      return LocationTableLevelCuda(level, rule.max_table_bytes, context);
    case ExpansionCuda::kSortUnique:
      break;
  }
  return SortUniqueLevelCuda(level, context);
}

// Levels whose sizes the host learns together: the first of a chain, as many as can be bounded.
class LevelGroup {
 public:
  LevelGroup(const ExpansionRuleCuda& rule, const CoordinateSet& inputs)
      : rule_(rule),
        inputs_(inputs),
        next_inputs_{inputs.rows().data(), inputs.size(), nullptr},
        next_bounds_(inputs.bounds()),
        next_stride_(inputs.tensor_stride()) {}
  // Waits for a copy that nobody has waited for: its memory serves others from now on.
  ~LevelGroup() {
    if (copying_ != nullptr) copying_->Synchronize().IgnoreError();
  }
  LevelGroup(const LevelGroup&) = delete;
  LevelGroup& operator=(const LevelGroup&) = delete;

  // Queues the levels of `geometries` (one at least), or the first of them, and the copy of their
  // sizes to the host.
  absl::Status Queue(absl::Span<const ConvGeometry> geometries, const ExecutionContext& context) {
    VOXCONV_RETURN_IF_ERROR(Start(geometries, context));
    for (const ConvGeometry& geometry : geometries) {
      VOXCONV_ASSIGN_OR_RETURN(const bool added, Add(geometry, context));
      if (!added) break;
    }
    VOXCONV_RETURN_IF_ERROR(FusedLevelsCuda(waiting_, context));
    VOXCONV_ASSIGN_OR_RETURN(found_, AsCuda(context).HostBuffer(infos_.bytes()));
    copying_ = context.stream;
    return context.backend->Copy(found_.data(), found_.space(), infos_.data(), infos_.space(),
                                 infos_.bytes(), *context.stream);
  }

  // Waits for the sizes. The sets of the levels that Queue has queued.
  absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(const ExecutionContext& context) {
    copying_ = nullptr;
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    const auto* const infos = static_cast<const LevelInfoCuda*>(found_.data());
    std::vector<CoordinateSetPtr> sets;
    for (size_t i = 0; i < levels_.size(); ++i) {
      VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set, MakeSet(infos[i], levels_[i], context));
      sets.push_back(std::move(set));
    }
    return sets;
  }

 private:
  struct Level {
    CandidateRule rule;
    const Coordinate* inputs;
    Buffer rows;  // with room for more than there are
  };

  static int64_t BytesOf(int64_t rows) { return rows * static_cast<int64_t>(sizeof(Coordinate)); }

  // Makes room for the sizes of the levels of `geometries`.
  absl::Status Start(absl::Span<const ConvGeometry> geometries, const ExecutionContext& context) {
    together_ = rule_.expansion == ExpansionCuda::kFused &&
                std::all_of(geometries.begin(), geometries.end(), OnlyQuantizes);
    const auto max_levels = static_cast<int64_t>(geometries.size());
    VOXCONV_ASSIGN_OR_RETURN(infos_, AllocateArray<LevelInfoCuda>(max_levels, context));
    constexpr int kThreads = 32;
    VOXCONV_LAUNCH(ResetKernel, GridFor(max_levels, kThreads), kThreads, 0, context, infos_.data(),
                   static_cast<int>(max_levels));
    return absl::OkStatus();
  }

  // Queues a level after the last, or leaves it in `waiting_`. False where its size had to be
  // guessed too high: then nothing is queued. Never for the first level.
  absl::StatusOr<bool> Add(const ConvGeometry& geometry, const ExecutionContext& context) {
    CandidateRule rule =
        CandidateRule::ForBounds(geometry, next_stride_, next_bounds_, inputs_.num_batches());
    ExpansionLevelCuda level{};
    level.inputs = next_inputs_;
    for (auto [axis, to] : {std::pair{0, &level.rule.x}, {1, &level.rule.y}, {2, &level.rule.z}}) {
      *to = MakeAxisRule(rule, geometry, axis);
    }
    level.rule.may_leave_range = rule.MayLeaveRange();
    const Box box = rule.OutputBox();
    level.cells = MakeCells(box, rule.output_tensor_stride(), inputs_.num_batches());
    level.max_outputs = rule.max_outputs_per_input();
    const auto bound =
        static_cast<int64_t>(std::min(static_cast<uint64_t>(level.max_keys()), level.cells.count));
    if (!levels_.empty() && bound > MaxGuess(rule_.expansion, inputs_.size())) {
      return false;
    }
    VOXCONV_ASSIGN_OR_RETURN(Buffer rows,
                             context.backend->Allocate(BytesOf(bound), *context.stream));
    level.outputs = static_cast<Coordinate*>(rows.data());
    level.info = infos_.data() + levels_.size();
    if (together_) {
      if (level.inputs.bound > 0) waiting_.push_back(level);
    } else {
      VOXCONV_RETURN_IF_ERROR(RunLevel(rule_, level, context));
      next_inputs_ = {level.outputs, bound, &level.info->size};
    }
    next_bounds_ = box;
    next_stride_ = rule.output_tensor_stride();
    levels_.push_back({std::move(rule), level.inputs.rows, std::move(rows)});
    return true;
  }

  absl::StatusOr<CoordinateSetPtr> MakeSet(const LevelInfoCuda& info, Level& level,
                                           const ExecutionContext& context) {
    if (info.bad_row != LevelInfoCuda::kNoRow) return RangeError(level, info.bad_row, context);
    if (info.size > INT32_MAX) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "output coordinates: ", info.size, " rows; at most ", INT32_MAX, " are allowed"));
    }
    const int64_t bytes = BytesOf(info.size);
    // Too much room to keep; a copy of less would only delay what waits for this set.
    if (level.rows.bytes() > 2 * bytes && level.rows.bytes() - bytes > kMaxSpare) {
      VOXCONV_ASSIGN_OR_RETURN(Buffer exact, context.backend->Allocate(bytes, *context.stream));
      VOXCONV_RETURN_IF_ERROR(context.backend->Copy(exact.data(), exact.space(), level.rows.data(),
                                                    level.rows.space(), bytes, *context.stream));
      std::swap(exact, level.rows);
    }
    Array<Coordinate> rows(std::move(level.rows), info.size);
    const Box bounds{{info.lo[0], info.lo[1], info.lo[2]}, {info.hi[0], info.hi[1], info.hi[2]}};
    // Output bounds may have dropped the last samples altogether.
    return CoordinateSet::Adopt(std::move(rows), level.rule.output_tensor_stride(), bounds,
                                info.last_batch + 1, /*sorted=*/true);
  }

  absl::Status RangeError(const Level& level, unsigned long long row,
                          const ExecutionContext& context) {
    Coordinate input;
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(&input, MemorySpace::kHost, level.inputs + row,
                                                  context.backend->device().space, sizeof(input),
                                                  *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    absl::Status status = level.rule.CheckRange({&input, 1});
    VOXCONV_CHECK(!status.ok());
    return status;
  }

  ExpansionRuleCuda rule_;
  const CoordinateSet& inputs_;
  Array<LevelInfoCuda> infos_;
  Buffer found_;               // of these, the host's copy
  Stream* copying_ = nullptr;  // fills it, unless it has been waited for
  std::vector<Level> levels_;
  bool together_ = false;
  std::vector<ExpansionLevelCuda> waiting_;  // queued together, by Queue
  LevelInputsCuda next_inputs_;
  Box next_bounds_;
  Int3 next_stride_;
};

class PendingChain final : public PendingCoordinates {
 public:
  PendingChain(const ExpansionRuleCuda& rule, absl::Span<const ConvGeometry> geometries)
      : rule_(rule), geometries_(geometries) {}

  // Queues the first group of levels.
  absl::Status Begin(const CoordinateSet& inputs, const ExecutionContext& context) {
    return geometries_.empty() ? absl::OkStatus() : QueueGroup(inputs, geometries_, context);
  }

  absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(const ExecutionContext& context) override {
    std::vector<CoordinateSetPtr> sets;
    while (sets.size() < geometries_.size()) {
      if (!sets.empty()) {
        VOXCONV_RETURN_IF_ERROR(
            QueueGroup(*sets.back(), geometries_.subspan(sets.size()), context));
      }
      VOXCONV_ASSIGN_OR_RETURN(std::vector<CoordinateSetPtr> known, group_->Finish(context));
      for (CoordinateSetPtr& set : known) sets.push_back(std::move(set));
    }
    return sets;
  }

 private:
  absl::Status QueueGroup(const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
                          const ExecutionContext& context) {
    group_.emplace(rule_, inputs);  // frees the memory of the last
    return group_->Queue(geometries, context);
  }

  ExpansionRuleCuda rule_;
  absl::Span<const ConvGeometry> geometries_;
  std::optional<LevelGroup> group_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PendingCoordinates>> BeginChainCuda(
    const ExpansionRuleCuda& rule, const CoordinateSet& inputs,
    absl::Span<const ConvGeometry> geometries, const ExecutionContext& context) {
  auto pending = std::make_unique<PendingChain>(rule, geometries);
  VOXCONV_RETURN_IF_ERROR(pending->Begin(inputs, context));
  return pending;
}

}  // namespace voxconv
