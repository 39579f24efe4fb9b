// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_READ_POINT_CLOUD_H_
#define VOXCONV_IO_READ_POINT_CLOUD_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"

namespace voxconv {

// What a reader must know besides the file. An option that the file's format cannot use is refused.
struct ReadOptions {
  std::string fields;         // raw, npy, npz: column names "x,y,z,…"; "_" skips one; "" = usual
  std::string dtype_in;       // raw only: f16, f32 or f64; "" = f32
  std::string array;          // npz only: which array; "" = "points", else the first
  int64_t samples = 100'000;  // meshes: points drawn on the surface
  uint64_t seed = 0;          // meshes: of those points
  bool into_unit_sphere = false;  // any format: see ScaleIntoUnitSphere
  int64_t npz_limit_mib = 256;    // npz: what all its arrays may take when unpacked (io/npy.h)
  // Raw, npy, npz: points further than 1000 km from here are taken for bits of another type.
  std::array<double, 3> origin = {0, 0, 0};
};

// Reads a point cloud by its file name's extension:
//   .bin           KITTI: f32 x,y,z,intensity        .pcd.bin  nuScenes: f32 x,y,z,intensity,ring
//   .npy .npz      [N, >= 3] float16/32/64: x,y,z,f0,f1,…
//   .ply                                             points with colours r,g,b and normals
//                                                    nx,ny,nz, or a mesh where it lists faces
//   .obj .stl .off .gltf .glb                        meshes, sampled on their surface
//   .pcd .xyz .xyzn .xyzrgb .pts                     points with colours and normals
// Rows with NaN or Inf are dropped and counted.
// Errors, one line each: kNotFound, kPermissionDenied, kInvalidArgument (content, options, an
// unknown extension), kDataLoss (damaged).
absl::StatusOr<PointCloud> ReadPointCloud(const std::string& path, const ReadOptions& options);

// Whether the file's name ends in one of these extensions.
bool HasPointCloudExtension(absl::string_view path);

// The same for the bytes of a file. `name` gives the extension. Other files that a .gltf names are
// not read.
absl::StatusOr<PointCloud> ParsePointCloud(absl::string_view bytes, const std::string& name,
                                           const ReadOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_IO_READ_POINT_CLOUD_H_
