#ifndef VOXCONV_IO_CHECK_PLY_H_
#define VOXCONV_IO_CHECK_PLY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Lets a PLY pass that Open3D 0.16 reads without a crash and without a word on stderr: the header
// is well formed, the body holds every row that it announces, no line or word overflows a buffer of
// the parser, and every face is a polygon of vertices that exist. Debian 12 has no
// package of a PLY reader (tinyply) that could read these files in Open3D's place. O(bytes).
// Errors: kInvalidArgument, kDataLoss (what is missing, by element and row).
absl::Status CheckPly(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_CHECK_PLY_H_
