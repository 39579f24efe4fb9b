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

// NumPy's array files (numpy.lib.format, versions 1.0 and 2.0) and their zip archives. Supported:
// the dtypes below, little-endian, C order; everything else is refused by name. All arrays live in
// host memory and own their bytes.
enum class NpyDtype { kBool, kUint8, kInt32, kInt64, kFloat16, kFloat32, kFloat64 };

absl::string_view NpyDtypeName(NpyDtype dtype);  // "float32", …
int64_t NpyItemSize(NpyDtype dtype);             // bytes

struct NpyArray {
  NpyDtype dtype = NpyDtype::kFloat32;
  std::vector<int64_t> shape;  // empty: a scalar, one element
  std::vector<uint8_t> bytes;  // product(shape) * item size, row-major

  int64_t size() const;  // number of elements
};

// An archive's arrays in its own order; names carry no ".npy".
using NpzArrays = std::vector<std::pair<std::string, NpyArray>>;

// The array called `name`, or nullptr.
const NpyArray* FindArray(const NpzArrays& arrays, absl::string_view name);

// Reading. `name` is what messages call the input. Errors: kInvalidArgument (not such a file, an
// unsupported dtype or order), kDataLoss (truncated or damaged); ReadFileBytes' for the path.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, absl::string_view name);
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);
absl::StatusOr<NpzArrays> ParseNpz(absl::string_view bytes, absl::string_view name);
absl::StatusOr<NpzArrays> ReadNpz(const std::string& path);

// Writing; the same arrays give the same bytes every time. Errors: kInvalidArgument (bytes that do
// not match the shape, an empty or repeated name), kUnavailable (cannot be written).
absl::StatusOr<std::string> SerializeNpy(const NpyArray& array);
absl::Status WriteNpy(const std::string& path, const NpyArray& array);
absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays);

// Values as another type. ToInt32/ToInt64 take the integer dtypes and bool; ToFloat32/ToFloat64 the
// float dtypes (float64 -> float32 rounds). A value that does not fit is refused with its index;
// another dtype is refused by name. O(N).
absl::StatusOr<std::vector<int32_t>> ToInt32(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<int64_t>> ToInt64(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<float>> ToFloat32(const NpyArray& array, absl::string_view name);
absl::StatusOr<std::vector<double>> ToFloat64(const NpyArray& array, absl::string_view name);

// An array that holds a copy of `values`.
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const uint8_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int32_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int64_t> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const float> values);
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const double> values);

// "[3, 4]", for messages.
std::string NpyShapeString(absl::Span<const int64_t> shape);

}  // namespace voxconv

#endif  // VOXCONV_IO_NPY_H_
