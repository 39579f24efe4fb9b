// SPDX-License-Identifier: Apache-2.0
// A .npy file: parsing, and what a parsed array promises.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "voxconv/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<voxconv::NpyArray> array = voxconv::ParseNpy(bytes, "fuzz.npy");
  if (!array.ok()) return 0;
  (void)voxconv::ToInt32(*array, "array");
  (void)voxconv::ToFloat32(*array, "array");
  const absl::StatusOr<std::string> written = voxconv::SerializeNpy(*array);
  if (!written.ok()) std::abort();
  const absl::StatusOr<voxconv::NpyArray> again = voxconv::ParseNpy(*written, "again.npy");
  if (!again.ok() || again->bytes != array->bytes || again->shape != array->shape) std::abort();
  return 0;
}
