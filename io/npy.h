// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_NPY_H_
#define VOXCONV_IO_NPY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace voxconv {

// NumPy's array files (numpy.lib.format, versions 1.0 and 2.0) and their zip archives. Arrays must
// be little-endian, in C order, of one of the dtypes below. The message of a refusal gives the
// dtype or the order. Arrays are in host memory and own their bytes.
enum class NpyDtype { kBool, kUint8, kUint16, kInt32, kInt64, kFloat16, kFloat32, kFloat64 };

absl::string_view NpyDtypeName(NpyDtype dtype);  // "float32", …
int64_t NpyItemSize(NpyDtype dtype);             // bytes

struct NpyArray {
  NpyDtype dtype = NpyDtype::kFloat32;
  std::vector<int64_t> shape;  // empty: a scalar, one element
  std::vector<uint8_t> bytes;  // product(shape) * item size, row-major

  int64_t size() const;  // number of elements
};

// Names and arrays of an archive, in its order. Names do not end in ".npy".
using NpzArrays = std::vector<std::pair<std::string, NpyArray>>;

// The array called `name`, or nullptr.
const NpyArray* FindArray(const NpzArrays& arrays, absl::string_view name);

struct NpzOptions {
  // What all arrays of an archive may take once they are unpacked, in bytes. An archive whose
  // members are stored may have more: it takes no more than its file. Deflate expands by 1000.
  int64_t max_bytes = int64_t{256} << 20;
  // The arrays to read. Others may be of any kind. Empty: all.
  std::vector<std::string> only = {};
  // Leaves out arrays of another dtype or order, such as texts. If no array is left, the error of
  // the first of them is returned.
  bool supported_only = false;
};

// Reading. Messages call the input `name`. kInvalidArgument for a file of another kind, and for a
// dtype or order that is not supported. kDataLoss for a damaged or short file. kResourceExhausted
// for an archive past its limit. The functions that take a path also have the errors of
// ReadFileBytes. O(bytes).
absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, absl::string_view name);
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);
absl::StatusOr<NpzArrays> ParseNpz(absl::string_view bytes, absl::string_view name,
                                   const NpzOptions& options = {});
absl::StatusOr<NpzArrays> ReadNpz(const std::string& path, const NpzOptions& options = {});
// The names of an archive's arrays, in its order. Reads none of them.
absl::StatusOr<std::vector<std::string>> ListNpz(const std::string& path);
absl::StatusOr<std::vector<std::string>> ListNpzOf(absl::string_view bytes, absl::string_view name);
// The texts of a one-dimensional array of NumPy's type for text ("<U"), as UTF-8. No texts if the
// archive has no array called `array`. kInvalidArgument for an array of another kind.
absl::StatusOr<std::vector<std::string>> ReadNpzText(const std::string& path,
                                                     absl::string_view array);
// The same for the bytes of one array.
absl::StatusOr<std::vector<std::string>> ParseNpyText(absl::string_view bytes,
                                                      absl::string_view name);

// Writing. Equal arrays give equal bytes. kInvalidArgument for bytes that do not match the shape,
// and for an empty or repeated name. Errors of WriteFileBytes. O(bytes).
absl::StatusOr<std::string> SerializeNpy(const NpyArray& array);
absl::StatusOr<std::string> SerializeNpz(const NpzArrays& arrays);
absl::Status WriteNpy(const std::string& path, const NpyArray& array);
absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays);

// Copy the values as another type. ToInt32 and ToInt64 take the integer dtypes and bool. ToFloat32
// and ToFloat64 take the float dtypes; float64 is rounded to float32. kInvalidArgument for another
// dtype, and for a value that does not fit; the message gives its index. Messages call the array
// `name`. O(N).
absl::StatusOr<std::vector<int32_t>> ToInt32(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<int64_t>> ToInt64(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<float>> ToFloat32(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<double>> ToFloat64(const NpyArray& array, absl::string_view name);

// An array that holds a copy of `values`.
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const uint8_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const uint16_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int32_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int64_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const float> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const double> values);

// "[3, 4]", for messages.
std::string NpyShapeString(absl::Span<const int64_t> shape);

}  // namespace voxconv

#endif  // VOXCONV_IO_NPY_H_
