// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_MESH_FILE_H_
#define VOXCONV_IO_MESH_FILE_H_

#include <functional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"
#include "voxconv/io/sample_mesh.h"

namespace voxconv::io_internal {

// Readers of mesh files, from their bytes. They take what is allowed in the format or refuse it in
// one line, and read nothing beyond `bytes`. Faces of more than three corners are cut into
// triangles. Messages call the file `name`. Time and memory are O(bytes), besides those of
// AppendTriangles. kDataLoss for damage. kInvalidArgument for content that has no meaning here.

// Wavefront OBJ: v with optional colours, vn, and f. Groups, materials, texture coordinates, points
// and lines say nothing about the surface and are passed over; no other file is opened. Free-form
// surfaces are refused.
absl::StatusOr<Mesh> ParseObj(absl::string_view bytes, absl::string_view name);

// OFF with the prefixes C and N, as text.
absl::StatusOr<Mesh> ParseOff(absl::string_view bytes, absl::string_view name);

// STL, as text or binary. Normals of facets follow from their corners and are passed over.
absl::StatusOr<Mesh> ParseStl(absl::string_view bytes, absl::string_view name);

// The bytes of a file beside the one that is read, by its name.
using ReadSibling = std::function<absl::StatusOr<std::string>(const std::string& file_name)>;

// glTF 2.0 and GLB: the triangles of the default scene with the transforms of its nodes. Buffers
// lie in the file, or in one that `read_sibling` finds. Refused: sparse accessors, required
// extensions, points and lines. Skins and morph targets are not applied.
absl::StatusOr<Mesh> ParseGltf(absl::string_view bytes, absl::string_view name,
                               const ReadSibling& read_sibling);

// PLY, as text or binary: a mesh if it has faces, else points. Points have colours r, g, b in
// [0, 1] and normals nx, ny, nz as features where the file has them. Other elements and properties
// are passed over, but triangle strips and faces without vertex_indices are refused.
absl::StatusOr<std::variant<PointCloud, Mesh>> ParsePly(absl::string_view bytes,
                                                        absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_MESH_FILE_H_
