// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_POLYGONS_H_
#define VOXCONV_IO_POLYGONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/sample_mesh.h"

namespace voxconv::io_internal {

// Faces of any number of corners, as files list them.
struct Polygons {
  std::vector<int64_t> corners;  // vertices of all faces, one face after the other
  std::vector<int64_t> sizes;    // corners of each face
};

// Appends the triangles of all faces to the mesh, whose vertices are complete. A face with n
// corners gives n - 2 triangles. A face that bulges outward everywhere is a fan around its first
// corner. Ears are cut off any other face, seen along its mean normal. kInvalidArgument names the
// face that has fewer than three corners or names a vertex that does not exist, and a face with an
// inward corner and more than 256 corners, which would take cubic time. Messages call the file
// `name`.
absl::Status AppendTriangles(const Polygons& faces, absl::string_view name, Mesh& mesh);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_POLYGONS_H_
