// SPDX-License-Identifier: Apache-2.0
// Named arrays in the safetensors format: eight bytes of length, a JSON header, and the arrays one
// after the other. It holds no code, and other frameworks read it.
// https://huggingface.co/docs/safetensors
#ifndef VOXCONV_IO_SAFETENSORS_H_
#define VOXCONV_IO_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace voxconv {

// One array in host memory, row-major, little-endian.
struct SafeTensor {
  std::string name;
  std::string dtype;           // as the format writes it: "F32", "F16", "BF16", "F64", "I64", ...
  std::vector<int64_t> shape;  // empty: one element
  std::string bytes;

  int64_t size() const;  // number of elements
};

struct Safetensors {
  std::vector<std::pair<std::string, std::string>> metadata;  // by key, in the file's order
  std::vector<SafeTensor> tensors;                            // in the order of their bytes

  const SafeTensor* Find(absl::string_view name) const;          // nullptr if there is none
  const std::string* FindMetadata(absl::string_view key) const;  // the same
};

// Reading. Messages call the input `name`. kDataLoss for a file that is cut off or damaged: a
// header past the end of the file, bytes that no array or two arrays have, a shape that does not
// fit its bytes. kInvalidArgument for a header that is not the format's JSON, and for an unknown
// dtype. ReadSafetensors also has the errors of ReadFileBytes. O(bytes).
absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view bytes, absl::string_view name);
absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path);

// Writing. Equal contents give equal bytes. kInvalidArgument for bytes that do not match the shape
// and dtype, an unknown dtype, and a name that is empty, repeated or "__metadata__". O(bytes).
absl::StatusOr<std::string> SerializeSafetensors(const Safetensors& content);

// An F32 array of `values`, and the values of an F32, F16, BF16 or F64 array; F64 is rounded. The
// message of kInvalidArgument gives the name and the dtype.
SafeTensor MakeSafeTensor(std::string name, std::vector<int64_t> shape,
                          absl::Span<const float> values);
absl::StatusOr<std::vector<float>> ToFloat32(const SafeTensor& tensor);

}  // namespace voxconv

#endif  // VOXCONV_IO_SAFETENSORS_H_
