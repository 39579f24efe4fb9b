// The checks that run before Open3D sees a file. The first line is the file's name.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "io/check_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\n');
  if (end == absl::string_view::npos) return 0;
  (void)voxconv::io_internal::CheckLayout(bytes.substr(end + 1), bytes.substr(0, end));
  return 0;
}
