#ifndef VOXCONV_IO_CHECK_PLY_H_
#define VOXCONV_IO_CHECK_PLY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Whether the PLY header is well formed and the body holds every row that it announces: Open3D's
// PLY parser would print to stderr about the first that is missing. kDataLoss names it. O(bytes).
absl::Status CheckPly(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_CHECK_PLY_H_
