// SPDX-License-Identifier: Apache-2.0
// Random changes of a cloud, so that a network sees more of them.
#ifndef VOXCONV_TRAINING_DATA_AUGMENT_H_
#define VOXCONV_TRAINING_DATA_AUGMENT_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/training/data/labelled_cloud.h"

namespace voxconv {

struct Augmentation {
  // Rotation about z by an angle in [-rotation, rotation] degrees, or, with `any_rotation`, one
  // that is uniform over all rotations; `rotation` is then not read.
  double rotation = 0;
  bool any_rotation = false;
  // The probability that the sign of an axis changes: x, y, z.
  std::array<double, 3> flip = {0, 0, 0};
  double scale = 0;        // all coordinates times a factor in [1 - scale, 1 + scale]
  double shift = 0;        // plus an offset of each axis in [-shift, shift], in the cloud's unit
  double jitter = 0;       // plus noise of each coordinate with this standard deviation
  double drop_points = 0;  // the share of points that are left out, between 0 and this share

  bool empty() const;
};

// kInvalidArgument names a value that is not allowed.
absl::Status CheckAugmentation(const Augmentation& augmentation);

// Changes the cloud. Which changes it makes depends on `seed` alone, on every machine. Rotates and
// flips features called nx, ny, nz with the points. At least one point stays. O(N).
void Augment(const Augmentation& augmentation, uint64_t seed, LabelledCloud& cloud);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_AUGMENT_H_
