// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/read_voxels.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/npy.h"

namespace voxconv {
namespace {

bool IsInteger(NpyDtype dtype) {
  return dtype == NpyDtype::kUint8 || dtype == NpyDtype::kInt32 || dtype == NpyDtype::kInt64;
}

struct NamedArray {
  std::string name;  // for messages
  NpyArray array;
};

// The array that holds the coordinates if the file has integer ones.
absl::StatusOr<NamedArray> ReadCoordinates(const std::string& path, bool archive,
                                           const ReadOptions& options) {
  NamedArray coords{path, {}};
  if (!archive) {
    VOXCONV_ASSIGN_OR_RETURN(coords.array, ReadNpy(path));
    return coords;
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNpz(path));
  std::vector<std::string> candidates = {options.array};
  if (options.array.empty()) candidates = {"points", "coords"};
  if (options.array.empty() && !names.empty()) candidates.push_back(names.front());
  for (const std::string& name : candidates) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    VOXCONV_ASSIGN_OR_RETURN(
        NpzArrays arrays,
        ReadNpz(path, {.max_bytes = options.npz_limit_mib << 20, .only = {name}}));
    return NamedArray{absl::StrCat(path, "[", name, "]"), std::move(arrays.front().second)};
  }
  return absl::NotFoundError(absl::StrCat(path, ": no such array"));
}

absl::Status CheckOptions(const std::string& name, const ReadOptions& options) {
  const char* given = !options.fields.empty()                     ? "fields"
                      : !options.dtype_in.empty()                 ? "dtype_in"
                      : options.into_unit_sphere                  ? "unit_sphere"
                      : options.origin != std::array<double, 3>{} ? "origin"
                                                                  : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", given, " has no meaning here; these are voxels, not points"));
}

// Of [N, 3] or [N, 4] rows.
absl::StatusOr<std::vector<uint64_t>> KeysOf(const NamedArray& coords, int32_t batch) {
  const std::vector<int64_t>& shape = coords.array.shape;
  if (shape.size() != 2 || shape[0] < 1 || (shape[1] != 3 && shape[1] != 4)) {
    return absl::InvalidArgumentError(absl::StrCat(
        coords.name, ": shape is ", NpyShapeString(shape),
        "; integer coordinates are [N, 3], x, y, z, or [N, 4], batch, x, y, z, with N >= 1"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ToInt64(coords.array, coords.name));
  const bool batched = shape[1] == 4;
  std::vector<uint64_t> keys(shape[0]);
  for (size_t row = 0; row < keys.size(); ++row) {
    const int64_t* at = values.data() + row * shape[1];
    const int64_t b = batched ? *at++ : batch;
    if (b < 0 || b > kMaxBatch) {
      return absl::OutOfRangeError(absl::StrCat(coords.name, ": row ", row, " has batch index ", b,
                                                "; allowed are 0 to ", kMaxBatch));
    }
    for (int axis = 0; axis < 3; ++axis) {
      if (InRange(at[axis])) continue;
      return absl::OutOfRangeError(
          absl::StrCat(coords.name, ": row ", row, " has ", std::string(1, kAxisNames[axis]), " = ",
                       at[axis], "; allowed are ", kMinCoordinate, " to ", kMaxCoordinate));
    }
    keys[row] = PackKey({static_cast<int32_t>(b), static_cast<int32_t>(at[0]),
                         static_cast<int32_t>(at[1]), static_cast<int32_t>(at[2])});
  }
  return keys;
}

// [N, channels]; no channels if the archive has no array of features.
absl::StatusOr<std::vector<float>> ReadFeatures(const std::string& path, int64_t rows,
                                                const ReadOptions& options) {
  VOXCONV_ASSIGN_OR_RETURN(
      const NpzArrays arrays,
      ReadNpz(path, {.max_bytes = options.npz_limit_mib << 20, .only = {"features"}}));
  const NpyArray* array = FindArray(arrays, "features");
  if (array == nullptr) return std::vector<float>();
  const std::string name = absl::StrCat(path, "[features]");
  constexpr int64_t kMostChannels = 65536;
  if (array->shape.size() != 2 || array->shape[0] != rows || array->shape[1] < 1 ||
      array->shape[1] > kMostChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": shape is ", NpyShapeString(array->shape), "; [", rows,
                     ", C] is needed, with 1 .. ", kMostChannels, " channels"));
  }
  return ToFloat32(*array, name);
}

absl::Status CheckDistinct(const std::string& name, const std::vector<uint64_t>& keys) {
  std::vector<std::pair<uint64_t, int64_t>> order(keys.size());
  for (size_t row = 0; row < keys.size(); ++row) order[row] = {keys[row], row};
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    const auto [key, row] = order[i];
    if (order[i - 1].first != key) continue;
    const Coordinate voxel = UnpackKey(key);
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": rows ", order[i - 1].second, " and ", row, " are the same voxel (", voxel.b, ", ",
        voxel.x, ", ", voxel.y, ", ", voxel.z, "); a voxel may come once"));
  }
  return absl::OkStatus();
}

// Rows with NaN or Inf are left out and counted, as those of point clouds.
absl::StatusOr<VoxelizedCloud> MakeCloud(const std::string& name, const std::vector<uint64_t>& keys,
                                         const std::vector<float>& features) {
  VOXCONV_RETURN_IF_ERROR(CheckDistinct(name, keys));
  VoxelizedCloud cloud;
  cloud.channels = static_cast<int>(features.size() / keys.size());
  for (int c = 0; c < cloud.channels; ++c) cloud.names.push_back(absl::StrCat("f", c));
  for (size_t row = 0; row < keys.size(); ++row) {
    const auto begin = features.begin() + static_cast<int64_t>(row) * cloud.channels;
    if (!std::all_of(begin, begin + cloud.channels, [](float v) { return std::isfinite(v); })) {
      ++cloud.dropped;
      continue;
    }
    cloud.coords.push_back(UnpackKey(keys[row]));
    cloud.features.insert(cloud.features.end(), begin, begin + cloud.channels);
  }
  if (cloud.size() == 0) {
    return absl::DataLossError(
        absl::StrCat(name, ": all ", cloud.dropped, " rows have NaN or Inf in their features"));
  }
  cloud.points = cloud.size();
  cloud.from_voxels = true;
  return cloud;
}

}  // namespace

absl::StatusOr<std::optional<VoxelizedCloud>> ReadVoxels(const std::string& path,
                                                         const ReadOptions& options,
                                                         int32_t batch) {
  const std::string lower = absl::AsciiStrToLower(path);
  const bool archive = absl::EndsWith(lower, ".npz");
  if ((!archive && !absl::EndsWith(lower, ".npy")) || !CheckIsFile(path).ok()) return std::nullopt;
  const absl::StatusOr<NamedArray> coords = ReadCoordinates(path, archive, options);
  // What is wrong with a file is said by its other reader.
  if (!coords.ok() || !IsInteger(coords->array.dtype)) return std::nullopt;
  VOXCONV_RETURN_IF_ERROR(CheckOptions(coords->name, options));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<uint64_t> keys, KeysOf(*coords, batch));
  std::vector<float> features;
  if (archive) {
    VOXCONV_ASSIGN_OR_RETURN(features,
                             ReadFeatures(path, static_cast<int64_t>(keys.size()), options));
  }
  VOXCONV_ASSIGN_OR_RETURN(VoxelizedCloud cloud, MakeCloud(coords->name, keys, features));
  return cloud;
}

}  // namespace voxconv
