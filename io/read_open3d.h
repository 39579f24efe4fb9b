#ifndef VOXCONV_IO_READ_OPEN3D_H_
#define VOXCONV_IO_READ_OPEN3D_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "io/point_cloud.h"
#include "io/read_point_cloud.h"

namespace voxconv {

// The formats that are read through Open3D; use ReadPointCloud, which dispatches here.

// Whether the lower-case file name ends in one of Open3dExtensions().
bool IsOpen3dExtension(absl::string_view lower_case_name);
std::string Open3dExtensions();  // ".pcd .xyz …", for messages

// ReadPointCloud for these extensions. kUnimplemented if the build has no Open3D. Only one call
// runs at a time: the reason of a failure is read from Open3D's log, and a process has one log.
absl::StatusOr<PointCloud> ReadPointCloudWithOpen3d(const std::string& path,
                                                    const ReadOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_IO_READ_OPEN3D_H_
