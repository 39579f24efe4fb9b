#ifndef VOXCONV_IO_CHECK_LAYOUT_H_
#define VOXCONV_IO_CHECK_LAYOUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Finds damage of a file before Open3D 0.16 reads it, which would ignore the damage or only print a
// line about it: rows that are missing at the end of an ASCII PCD (Open3D fills them with zeros),
// lines of an XYZ file that are not points (Open3D skips them), and a compressed PCD whose sizes do
// not agree. Files with other extensions pass. `bytes` is the whole file. `name` gives
// the extension, and messages call the file by it. O(bytes).
absl::Status CheckLayout(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_CHECK_LAYOUT_H_
