// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/augment.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "voxconv/core/random.h"

namespace voxconv {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;

Matrix RotationAboutZ(double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {{{c, -s, 0}, {s, c, 0}, {0, 0, 1}}};
}

// Uniform over all rotations, as that of a unit quaternion that is uniform on its sphere
// (Shoemake, 1992).
Matrix AnyRotation(Random& random) {
  const double share = random.Uniform();
  const double first = random.Uniform(0, 2 * M_PI), second = random.Uniform(0, 2 * M_PI);
  const double a = std::sqrt(1 - share), b = std::sqrt(share);
  const double x = a * std::sin(first), y = a * std::cos(first);
  const double z = b * std::sin(second), w = b * std::cos(second);
  return {{{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
           {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
           {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}}};
}

// The linear part of the change, without the scale.
Matrix RandomOrientation(const Augmentation& augmentation, Random& random) {
  Matrix matrix =
      augmentation.any_rotation
          ? AnyRotation(random)
          : RotationAboutZ(random.Uniform(-augmentation.rotation, augmentation.rotation) * M_PI /
                           180);
  for (int row = 0; row < 3; ++row) {
    if (random.Uniform() >= augmentation.flip[row]) continue;
    for (double& value : matrix[row]) value = -value;
  }
  return matrix;
}

template <typename T>
void Transform(const Matrix& matrix, T* vector) {
  const std::array<double, 3> from = {double{vector[0]}, double{vector[1]}, double{vector[2]}};
  for (int row = 0; row < 3; ++row) {
    vector[row] = static_cast<T>(matrix[row][0] * from[0] + matrix[row][1] * from[1] +
                                 matrix[row][2] * from[2]);
  }
}

// The column of the feature nx, if ny and nz follow it; -1 otherwise.
int64_t NormalColumn(const PointCloud& cloud) {
  const std::vector<std::string>& names = cloud.feature_names;
  for (size_t c = 0; c + 2 < names.size(); ++c) {
    if (names[c] == "nx" && names[c + 1] == "ny" && names[c + 2] == "nz") {
      return static_cast<int64_t>(c);
    }
  }
  return -1;
}

// Keeps the rows for which `keep` is true.
template <typename T>
void Select(const std::vector<bool>& keep, int64_t width, std::vector<T>& rows) {
  int64_t to = 0;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    std::copy_n(rows.begin() + static_cast<int64_t>(i) * width, width, rows.begin() + to);
    to += width;
  }
  rows.resize(to);
}

void DropPoints(double share, Random& random, LabelledCloud& cloud) {
  const double rate = random.Uniform(0, share);
  std::vector<bool> keep(cloud.cloud.size());
  bool any = false;
  for (size_t i = 0; i < keep.size(); ++i) any |= keep[i] = random.Uniform() >= rate;
  if (!keep.empty() && !any) keep[0] = true;
  if (cloud.labels.size() == keep.size() && keep.size() > 1) Select(keep, 1, cloud.labels);
  Select(keep, cloud.cloud.channels(), cloud.cloud.features);
  Select(keep, 3, cloud.cloud.xyz);
}

absl::Status CheckShare(absl::string_view name, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("augmentation: ", name, ": ", value, "; allowed is [0, 1]"));
}

absl::Status CheckAmount(absl::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("augmentation: ", name, ": ", value, "; it must be finite and at least 0"));
}

}  // namespace

bool Augmentation::empty() const {
  return rotation == 0 && !any_rotation && flip == std::array<double, 3>{0, 0, 0} && scale == 0 &&
         shift == 0 && jitter == 0 && drop_points == 0;
}

absl::Status CheckAugmentation(const Augmentation& augmentation) {
  absl::Status status = CheckAmount("rotation", augmentation.rotation);
  for (const double flip : augmentation.flip) status.Update(CheckShare("flip", flip));
  status.Update(CheckAmount("shift", augmentation.shift));
  status.Update(CheckAmount("jitter", augmentation.jitter));
  status.Update(CheckShare("drop_points", augmentation.drop_points));
  if (status.ok() && !(augmentation.scale >= 0 && augmentation.scale < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("augmentation: scale: ", augmentation.scale, "; allowed is [0, 1)"));
  }
  return status;
}

void Augment(const Augmentation& augmentation, uint64_t seed, LabelledCloud& cloud) {
  if (augmentation.empty()) return;
  Random random(seed);
  if (augmentation.drop_points > 0) DropPoints(augmentation.drop_points, random, cloud);
  const Matrix orientation = RandomOrientation(augmentation, random);
  const double scale = random.Uniform(1 - augmentation.scale, 1 + augmentation.scale);
  std::array<double, 3> shift;
  for (double& offset : shift) offset = random.Uniform(-augmentation.shift, augmentation.shift);
  std::vector<double>& xyz = cloud.cloud.xyz;
  for (size_t i = 0; i + 2 < xyz.size(); i += 3) {
    Transform(orientation, &xyz[i]);
    for (int axis = 0; axis < 3; ++axis) {
      double& value = xyz[i + axis];
      value = value * scale + shift[axis];
      if (augmentation.jitter > 0) value += augmentation.jitter * random.Noise();
    }
  }
  const int64_t normal = NormalColumn(cloud.cloud), channels = cloud.cloud.channels();
  for (int64_t i = 0; normal >= 0 && i < cloud.cloud.size(); ++i) {
    Transform(orientation, &cloud.cloud.features[i * channels + normal]);
  }
}

}  // namespace voxconv
