// SPDX-License-Identifier: Apache-2.0
// One HTML file that shows voxels in a browser. It has all that it needs in it and asks for nothing
// from a network.
#ifndef VOXCONV_VIEW_PAGE_H_
#define VOXCONV_VIEW_PAGE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/view/cloud_view.h"

namespace voxconv::view {

// three.js, which draws, and its OrbitControls, which turn the picture (Debian: libjs-three).
struct Scripts {
  std::string three;     // three.min.js
  std::string controls;  // OrbitControls.js
};
// Reads them from the folder that $VOXCONV_THREE_DIR names, as the package lays it out, or from
// /usr/share/javascript/three. kNotFound, saying what to install, where they are missing.
absl::StatusOr<Scripts> LoadScripts();

// The page. It shows one colouring of one set at a time; people choose among them. `title` and all
// names come out as they are, whatever they hold; what is no UTF-8 becomes U+FFFD. `notes` are
// sentences under the title. kInvalidArgument without a set, for a set without voxels or
// colourings, and for a colouring that has not one value a voxel. Takes about 30 bytes of text a
// voxel, and 6 more for each colouring.
absl::StatusOr<std::string> MakePage(const std::string& title,
                                     const std::vector<std::string>& notes,
                                     absl::Span<const VoxelSet> sets, const Scripts& scripts);

}  // namespace voxconv::view

#endif  // VOXCONV_VIEW_PAGE_H_
