#ifndef VOXCONV_IO_CHECK_LAYOUT_H_
#define VOXCONV_IO_CHECK_LAYOUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Finds damage that Open3D 0.16 would pass over in silence or print about, before it reads the
// file: rows missing at the end of an ASCII PCD (it fills them with zeros), lines of an XYZ file
// that are no point (it skips them), a compressed PCD whose sizes disagree, a short PLY. Other
// extensions are OK. `name` gives the extension and is what messages call the file. O(bytes).
absl::Status CheckLayout(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_CHECK_LAYOUT_H_
