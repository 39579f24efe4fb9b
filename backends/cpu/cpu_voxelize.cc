// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_voxelize.h"

#include <algorithm>
#include <atomic>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

constexpr int64_t kPointsPerTask = 4096;

// The steps of a voxelisation. Points of a voxel stand together once they are sorted by key, in the
// order of the cloud. The first point of each such group then says where its row is.
class Voxelization {
 public:
  Voxelization(const ConstTensorView& points, const int32_t* batches, const VoxelOptions& options,
               const ExecutionContext& context)
      : points_(points),
        batches_(batches),
        options_(options),
        grid_(GridOf(options)),
        limit_(PointLimit(options)),
        context_(context) {}

  absl::StatusOr<PointVoxels> Run() {
    VOXCONV_ASSIGN_OR_RETURN(voxels_, AllocateVoxels(points_, options_, context_));
    VOXCONV_ASSIGN_OR_RETURN(keys_, AllocateArray<uint64_t>(points_.rows, context_));
    VOXCONV_ASSIGN_OR_RETURN(sorted_, AllocateArray<int32_t>(points_.rows, context_));
    VOXCONV_ASSIGN_OR_RETURN(groups_, AllocateArray<int32_t>(points_.rows, context_));
    report() = VoxelReport{};
    MakeKeys();
    if (report().bad_point != 0) return std::move(voxels_);
    VOXCONV_RETURN_IF_ERROR(RadixSort(keys_, sorted_, context_));
    FindGroups();
    PlaceRows();
    FillRows();
    return std::move(voxels_);
  }

 private:
  VoxelReport& report() { return *voxels_.report.data(); }
  const float* Point(int64_t i) const { return points_.f32() + i * points_.channels; }

  // A dropped point has the empty key, which is the least.
  void MakeKeys() {
    std::atomic<uint64_t> bad{0};  // as in VoxelReport
    ParallelRanges(context_, points_.rows, kPointsPerTask, [&](int64_t begin, int64_t end) {
      uint64_t worst = 0;
      for (int64_t i = begin; i < end; ++i) {
        Coordinate voxel{.b = batches_ == nullptr ? 0 : batches_[i]};
        int found = grid_.Locate(Point(i), voxel);
        if (found == PointGrid::kInside && (voxel.b < 0 || voxel.b > kMaxBatch)) found = 3;
        keys_.data()[i] = found == PointGrid::kInside ? PackKey(voxel) : kEmptyKey;
        sorted_.data()[i] = static_cast<int32_t>(i);
        if (found >= 0) worst = std::max(worst, ~static_cast<uint64_t>(4 * i + found));
      }
      uint64_t seen = bad.load();
      while (worst > seen && !bad.compare_exchange_weak(seen, worst)) {
      }
    });
    report().bad_point = bad.load();
    if (report().bad_point == 0) return;
    const auto at = static_cast<int64_t>(~report().bad_point);
    const int64_t point = at / 4, axis = at % 4;
    report().bad_value = axis == 3 ? batches_[point] : Point(point)[axis];
  }

  // groups_[i]: where the group begins whose first point is i, or -1.
  void FindGroups() {
    std::fill_n(groups_.data(), groups_.size(), -1);
    ParallelRanges(context_, points_.rows, kPointsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const uint64_t key = keys_.data()[j];
        if (key == kEmptyKey || (j > 0 && keys_.data()[j - 1] == key)) continue;
        groups_.data()[sorted_.data()[j]] = static_cast<int32_t>(j);
      }
    });
  }

  // Rows in the order of first points. Moves each row's group to groups_[row].
  void PlaceRows() {
    const int64_t most = voxels_.coords.size();
    int64_t row = 0, kept = 0;
    for (int64_t i = 0; i < points_.rows && row < most; ++i) {
      const int64_t group = groups_.data()[i];
      if (group < 0) continue;
      const uint64_t key = keys_.data()[group];
      int64_t end = group + 1;
      while (end < points_.rows && keys_.data()[end] == key) ++end;
      const Coordinate voxel = UnpackKey(key);
      voxels_.coords.data()[row] = voxel;
      voxels_.begins.data()[row] = static_cast<int32_t>(kept);
      AddToBounds(voxel);
      groups_.data()[row++] = static_cast<int32_t>(group);  // i >= row
      kept += end - group;
    }
    voxels_.begins.data()[row] = static_cast<int32_t>(kept);
    report().voxels = row;
    report().dropped = static_cast<int32_t>(points_.rows - kept);
  }

  void AddToBounds(const Coordinate& voxel) {
    const Int3 at = voxel.position();
    for (int axis = 0; axis < 3; ++axis) {
      uint32_t& below = report().below[axis];
      uint32_t& above = report().above[axis];
      below = std::max(below, static_cast<uint32_t>(kMaxCoordinate - at[axis]));
      above = std::max(above, static_cast<uint32_t>(at[axis] - kMinCoordinate));
    }
    report().batches = std::max(report().batches, static_cast<uint32_t>(voxel.b + 1));
  }

  void FillRows() {
    int32_t* const voxel_of_point = voxels_.voxel_of_point.data();
    std::fill_n(voxel_of_point, points_.rows, -1);
    ParallelRanges(context_, report().voxels, kPointsPerTask / 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = voxels_.begins.data()[row];
        const int64_t count = voxels_.begins.data()[row + 1] - first;
        int32_t* const of_voxel = voxels_.points.data() + first;
        std::copy_n(sorted_.data() + groups_.data()[row], count, of_voxel);
        for (int64_t k = 0; k < count; ++k) voxel_of_point[of_voxel[k]] = static_cast<int32_t>(row);
        const int64_t used = std::min(count, limit_);
        voxels_.points_of_voxel.data()[row] = static_cast<int32_t>(used);
        WriteFeatures(row, of_voxel, used);
      }
    });
  }

  void WriteFeatures(int64_t row, const int32_t* of_voxel, int64_t used) {
    const int64_t channels = voxels_.features.channels(), skipped = options_.xyz_features ? 0 : 3;
    const int64_t columns = points_.channels - skipped;
    float* const to = voxels_.features.view().f32() + row * channels;
    if (options_.features == VoxelFeatures::kPoints) {
      std::fill_n(to, channels, 0.0f);
      for (int64_t k = 0; k < used; ++k) {
        std::copy_n(Point(of_voxel[k]) + skipped, columns, to + k * columns);
      }
      return;
    }
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < used; ++k) sum += Point(of_voxel[k])[skipped + c];
      to[c] = static_cast<float>(sum / static_cast<double>(used));
    }
  }

  const ConstTensorView points_;
  const int32_t* const batches_;
  const VoxelOptions& options_;
  const PointGrid grid_;
  const int64_t limit_;
  const ExecutionContext& context_;
  PointVoxels voxels_;
  Array<uint64_t> keys_;
  Array<int32_t> sorted_, groups_;
};

}  // namespace

absl::StatusOr<PointVoxels> CpuVoxelize(const ConstTensorView& points, const int32_t* batches,
                                        const VoxelOptions& options,
                                        const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckVoxelize(points, options, *context.backend));
  return Voxelization(points, batches, options, context).Run();
}

}  // namespace voxconv
