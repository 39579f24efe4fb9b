// SPDX-License-Identifier: Apache-2.0
// Scenes made of voxels: density and neighbour counts are set apart from each other.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/random.h"
#include "voxconv/io/row_order.h"
#include "voxconv/io/scene_makers.h"

namespace voxconv::io_internal {
namespace {

constexpr int64_t kMaxVoxels = 20'000'000;
constexpr int64_t kMaxValues = int64_t{1} << 31;  // of features, 8 GiB: beyond it is a typing error

// `insert(number)` adds it to a set, and says whether it is new there.
template <typename Insert>
std::vector<uint64_t> DrawDistinct(uint64_t bound, int64_t count, Random& random,
                                   const Insert& insert) {
  std::vector<uint64_t> out;
  out.reserve(static_cast<size_t>(count));
  for (uint64_t last = bound - static_cast<uint64_t>(count); last < bound; ++last) {
    const uint64_t draw = random.Below(last + 1);
    out.push_back(insert(draw) ? draw : last);
    if (out.back() == last) insert(last);
  }
  return out;
}

// `count` distinct numbers below `bound`, in the order of their draws: Floyd's algorithm, one draw
// a number however full the range gets. Needs count <= bound.
std::vector<uint64_t> DistinctBelow(uint64_t bound, int64_t count, Random& random) {
  // A bit for each number of the range is smaller than a hash table of the chosen ones up to here.
  constexpr uint64_t kMostBitsPerNumber = 128;
  if (bound / kMostBitsPerNumber <= static_cast<uint64_t>(count)) {
    std::vector<bool> chosen(bound);
    return DrawDistinct(bound, count, random, [&](uint64_t number) {
      const bool is_new = !chosen[number];
      chosen[number] = true;
      return is_new;
    });
  }
  absl::flat_hash_set<uint64_t> chosen;
  chosen.reserve(static_cast<size_t>(count));
  return DrawDistinct(bound, count, random,
                      [&](uint64_t number) { return chosen.insert(number).second; });
}

// The places of `values`, which are distinct, by ascending value.
std::vector<size_t> Ascending(const std::vector<uint64_t>& values) {
  std::vector<std::pair<uint64_t, size_t>> placed(values.size());
  for (size_t i = 0; i < values.size(); ++i) placed[i] = {values[i], i};
  std::sort(placed.begin(), placed.end());
  std::vector<size_t> places(values.size());
  std::transform(placed.begin(), placed.end(), places.begin(),
                 [](const auto& entry) { return entry.second; });
  return places;
}

// The smallest edge of a cube with at least `cells` cells; pow's last digit does not matter.
int64_t CubeEdge(int64_t cells) {
  int64_t edge = std::max<int64_t>(1, static_cast<int64_t>(std::cbrt(static_cast<double>(cells))));
  while (edge > 1 && (edge - 1) * (edge - 1) * (edge - 1) >= cells) --edge;
  while (edge * edge * edge < cells) ++edge;
  return edge;
}

Coordinate CellCoordinates(uint64_t cell, int64_t edge, int64_t pitch) {
  const uint64_t e = static_cast<uint64_t>(edge);
  const auto axis = [&](uint64_t index) {
    return static_cast<int32_t>(static_cast<int64_t>(index) * pitch);
  };
  return {0, axis(cell / (e * e)), axis(cell / e % e), axis(cell % e)};
}

absl::Status CheckSize(const SceneSpec& spec, int64_t voxels) {
  if (voxels > kMaxVoxels) {
    return absl::InvalidArgumentError(
        absl::StrCat("scene:", spec.name, ": makes ", voxels, " voxels; allowed are ", kMaxVoxels));
  }
  if (voxels * spec.Integer("channels") > kMaxValues) {
    return absl::InvalidArgumentError(absl::StrCat("scene:", spec.name, ": ", voxels,
                                                   " voxels x channels=", spec.Integer("channels"),
                                                   " exceeds 2^31 features"));
  }
  return absl::OkStatus();
}

// Gives each voxel its features. They are drawn by ascending voxel, so that a change in the order
// of the voxels changes none.
Scene Finish(std::vector<Coordinate> coords, const SceneSpec& spec, Random& random) {
  const int64_t voxels = static_cast<int64_t>(coords.size());
  const int64_t channels = spec.Integer("channels");
  VoxelizedCloud cloud;
  cloud.coords = std::move(coords);
  cloud.points = voxels;
  cloud.channels = static_cast<int>(channels);
  for (int64_t i = 0; i < channels; ++i) cloud.names.push_back(absl::StrCat("f", i));
  cloud.features.resize(static_cast<size_t>(voxels * channels));
  for (const int64_t row : OrderRows(cloud.coords, RowOrder::kSorted, /*seed=*/0)) {
    for (int64_t i = 0; i < channels; ++i) {
      cloud.features[row * channels + i] = static_cast<float>(random.Uniform(-1, 1));
    }
  }
  return cloud;
}

absl::Status CheckExtent(const SceneSpec& spec, int64_t extent) {
  if (extent - 1 <= kMaxCoordinate) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("scene:", spec.name, ": needs ", extent,
                                                 " voxels along an axis; allowed are ",
                                                 kMaxCoordinate + 1));
}

}  // namespace

absl::StatusOr<Scene> MakeUniform(const SceneSpec& spec) {
  const int64_t count = spec.Integer("n");
  const int64_t box = spec.Integer("box");
  if (absl::Status status = CheckSize(spec, count); !status.ok()) return status;
  if (count > box * box * box) {
    return absl::InvalidArgumentError(absl::StrCat("scene:uniform: n=", count,
                                                   " does not fit into box=", box, ": ",
                                                   box * box * box, " cells"));
  }
  Random random(spec.Seed());
  std::vector<Coordinate> coords;
  coords.reserve(static_cast<size_t>(count));
  for (const uint64_t cell : DistinctBelow(static_cast<uint64_t>(box * box * box), count, random)) {
    coords.push_back(CellCoordinates(cell, box, 1));
  }
  return Finish(std::move(coords), spec, random);
}

absl::StatusOr<Scene> MakeIsolated(const SceneSpec& spec) {
  // Cells of 4^3, a quarter of them used, the voxel anywhere in the cell's first 3^3: voxels of
  // two cells are then at least 2 apart, yet on odd coordinates as often as on even ones.
  constexpr int64_t kPitch = 4;
  const int64_t count = spec.Integer("n");
  if (absl::Status status = CheckSize(spec, count); !status.ok()) return status;
  const int64_t edge = CubeEdge(4 * count);
  if (absl::Status status = CheckExtent(spec, edge * kPitch); !status.ok()) return status;
  Random random(spec.Seed());
  const std::vector<uint64_t> cells =
      DistinctBelow(static_cast<uint64_t>(edge * edge * edge), count, random);
  std::vector<Coordinate> coords(cells.size());
  for (const size_t row : Ascending(cells)) {
    coords[row] = CellCoordinates(cells[row], edge, kPitch);
    for (int32_t* axis : {&coords[row].x, &coords[row].y, &coords[row].z}) {
      *axis += static_cast<int32_t>(random.Below(3));
    }
  }
  return Finish(std::move(coords), spec, random);
}

absl::StatusOr<Scene> MakeBlocks(const SceneSpec& spec) {
  const int64_t count = spec.Integer("n");
  const int64_t block = spec.Integer("edge");
  const int64_t pitch = block + 2;  // two empty voxels between neighbours
  const int64_t edge = CubeEdge(2 * count);
  if (absl::Status status = CheckExtent(spec, edge * pitch); !status.ok()) return status;
  const int64_t voxels = count * block * block * block;
  if (absl::Status status = CheckSize(spec, voxels); !status.ok()) return status;
  Random random(spec.Seed());
  std::vector<Coordinate> coords;
  coords.reserve(static_cast<size_t>(voxels));
  for (const uint64_t cell :
       DistinctBelow(static_cast<uint64_t>(edge * edge * edge), count, random)) {
    const Coordinate corner = CellCoordinates(cell, edge, pitch);
    for (int32_t x = 0; x < block; ++x) {
      for (int32_t y = 0; y < block; ++y) {
        for (int32_t z = 0; z < block; ++z) {
          coords.push_back({0, corner.x + x, corner.y + y, corner.z + z});
        }
      }
    }
  }
  return Finish(std::move(coords), spec, random);
}

}  // namespace voxconv::io_internal
