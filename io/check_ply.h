#ifndef VOXCONV_IO_CHECK_PLY_H_
#define VOXCONV_IO_CHECK_PLY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Passes only a PLY that Open3D 0.16 reads without a crash and without a line on stderr. The header
// must be well formed. The body must have every row that the header announces. No line or word may
// overflow a buffer of the parser. Every face must be a polygon of vertices that exist. `bytes` is
// the whole file, which messages call `name`. O(bytes). kInvalidArgument for a file that breaks a
// rule. kDataLoss for a short file; the message gives the element and row that is missing. Debian
// 12 has no package of another PLY reader that could read these files in Open3D's place.
absl::Status CheckPly(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_CHECK_PLY_H_
