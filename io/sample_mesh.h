#ifndef VOXCONV_IO_SAMPLE_MESH_H_
#define VOXCONV_IO_SAMPLE_MESH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "io/point_cloud.h"

namespace voxconv {

// A triangle mesh in host memory. Normals and colours are per vertex and may be empty.
struct Mesh {
  std::vector<double> vertices;                   // [V, 3]
  std::vector<double> normals;                    // [V, 3] or empty
  std::vector<double> colors;                     // [V, 3] in [0, 1] or empty
  std::vector<std::array<int32_t, 3>> triangles;  // [T], indices into the vertices
};

// `samples` points uniform over the mesh's area (Turk's square-root barycentric rule), with unit
// normals nx, ny, nz as features — interpolated where the mesh has vertex normals, the face's
// otherwise — and, where it has colours, r, g, b. The same seed gives the same points: own code,
// since Open3D's sampler draws through std:: distributions, which differ between standard
// libraries. `name` is what messages call the mesh. O(T + samples log T). Errors: kInvalidArgument
// (samples < 1, no triangle, an index out of range, a non-finite vertex, no area).
absl::StatusOr<PointCloud> SampleMesh(const Mesh& mesh, int64_t samples, uint64_t seed,
                                      absl::string_view name);

}  // namespace voxconv

#endif  // VOXCONV_IO_SAMPLE_MESH_H_
