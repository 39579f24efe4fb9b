// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_SAMPLE_MESH_H_
#define VOXCONV_IO_SAMPLE_MESH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"

namespace voxconv {

// A triangle mesh in host memory. Normals and colours are per vertex and may be empty.
struct Mesh {
  std::vector<double> vertices;                   // [V, 3]
  std::vector<double> normals;                    // [V, 3] or empty
  std::vector<double> colors;                     // [V, 3] in [0, 1] or empty
  std::vector<std::array<int32_t, 3>> triangles;  // [T], indices into the vertices
};

// Draws `samples` points uniformly over the mesh's area (Turk's square-root barycentric rule).
// Their features are unit normals nx, ny, nz, and colours r, g, b if the mesh has colours. Normals
// are interpolated if the mesh has vertex normals; otherwise they are those of the faces. The same
// seed gives the same points on every platform. Open3D's sampler does not: it uses std::
// distributions, which differ between standard libraries. Messages call the mesh `name`. O(T +
// samples * log T). kInvalidArgument for samples < 1, a mesh without triangles or without area, an
// index out of range, and a vertex that is not finite.
absl::StatusOr<PointCloud> SampleMesh(const Mesh& mesh, int64_t samples, uint64_t seed,
                                      absl::string_view name);

}  // namespace voxconv

#endif  // VOXCONV_IO_SAMPLE_MESH_H_
