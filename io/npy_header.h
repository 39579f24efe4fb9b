// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_NPY_HEADER_H_
#define VOXCONV_IO_NPY_HEADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/npy.h"

namespace voxconv::io_internal {

struct NpyHeader {
  NpyDtype dtype = NpyDtype::kFloat32;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file
  int64_t data_size = 0;    // bytes; product(shape) * item size, no overflow
};

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes, absl::string_view name);

// product(shape) * item_size. kInvalidArgument if an extent is negative or the product overflows.
absl::StatusOr<int64_t> NpyByteSize(absl::Span<const int64_t> shape, int64_t item_size,
                                    absl::string_view name);

absl::string_view NpyDescr(NpyDtype dtype);  // "<f4", …

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_NPY_HEADER_H_
