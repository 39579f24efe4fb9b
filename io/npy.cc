// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/npy.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/half.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/npy_header.h"
#include "voxconv/io/output_file.h"

namespace voxconv {
namespace {

static_assert(std::endian::native == std::endian::little, "array files are little-endian");

template <typename T>
struct NpyDtypeOf;
template <>
struct NpyDtypeOf<uint8_t> : std::integral_constant<NpyDtype, NpyDtype::kUint8> {};
template <>
struct NpyDtypeOf<uint16_t> : std::integral_constant<NpyDtype, NpyDtype::kUint16> {};
template <>
struct NpyDtypeOf<int32_t> : std::integral_constant<NpyDtype, NpyDtype::kInt32> {};
template <>
struct NpyDtypeOf<int64_t> : std::integral_constant<NpyDtype, NpyDtype::kInt64> {};
template <>
struct NpyDtypeOf<float> : std::integral_constant<NpyDtype, NpyDtype::kFloat32> {};
template <>
struct NpyDtypeOf<double> : std::integral_constant<NpyDtype, NpyDtype::kFloat64> {};

template <typename T>
NpyArray MakeArray(std::vector<int64_t> shape, absl::Span<const T> values) {
  NpyArray array{NpyDtypeOf<T>::value, std::move(shape), {}};
  array.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

template <typename T>
T Load(const NpyArray& array, int64_t index) {
  T value;
  std::memcpy(&value, array.bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

absl::Status CheckBytes(const NpyArray& array, absl::string_view name) {
  const absl::StatusOr<int64_t> size =
      io_internal::NpyByteSize(array.shape, NpyItemSize(array.dtype), name);
  if (!size.ok()) return size.status();
  if (static_cast<int64_t>(array.bytes.size()) == *size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": holds ", array.bytes.size(), " bytes, but shape ", NpyShapeString(array.shape),
      " of ", NpyDtypeName(array.dtype), " needs ", *size));
}

// Converts each value of type From to To; a value that To cannot hold is refused.
template <typename To, typename From>
absl::Status ConvertValues(const NpyArray& array, absl::string_view name, std::vector<To>& out) {
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const From value = Load<From>(array, i);
    bool fits = true;
    if constexpr (std::is_integral_v<To>) {
      fits = static_cast<From>(static_cast<To>(value)) == value;
    } else if constexpr (sizeof(From) > sizeof(To)) {
      fits = !std::isfinite(value) || std::abs(value) <= std::numeric_limits<To>::max();
    }
    if (!fits) {
      return absl::OutOfRangeError(absl::StrCat(name, ": element ", i, " is ", value,
                                                ", which does not fit ",
                                                NpyDtypeName(NpyDtypeOf<To>::value)));
    }
    out[static_cast<size_t>(i)] = static_cast<To>(value);
  }
  return absl::OkStatus();
}

absl::Status WrongDtype(const NpyArray& array, absl::string_view name, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": dtype is ", NpyDtypeName(array.dtype), "; allowed: ", allowed));
}

template <typename To>
absl::StatusOr<std::vector<To>> ToIntegers(const NpyArray& array, absl::string_view name) {
  if (absl::Status status = CheckBytes(array, name); !status.ok()) return status;
  std::vector<To> out(static_cast<size_t>(array.size()));
  absl::Status status;
  switch (array.dtype) {
    case NpyDtype::kBool:
    case NpyDtype::kUint8:
      status = ConvertValues<To, uint8_t>(array, name, out);
      break;
    case NpyDtype::kUint16:
      status = ConvertValues<To, uint16_t>(array, name, out);
      break;
    case NpyDtype::kInt32:
      status = ConvertValues<To, int32_t>(array, name, out);
      break;
    case NpyDtype::kInt64:
      status = ConvertValues<To, int64_t>(array, name, out);
      break;
    default:
      return WrongDtype(array, name, "int32, int64, uint8, uint16, bool");
  }
  if (!status.ok()) return status;
  return out;
}

template <typename To>
absl::StatusOr<std::vector<To>> ToFloats(const NpyArray& array, absl::string_view name) {
  if (absl::Status status = CheckBytes(array, name); !status.ok()) return status;
  std::vector<To> out(static_cast<size_t>(array.size()));
  absl::Status status;
  switch (array.dtype) {
    case NpyDtype::kFloat16:
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = HalfBitsToFloat(Load<uint16_t>(array, static_cast<int64_t>(i)));
      }
      break;
    case NpyDtype::kFloat32:
      status = ConvertValues<To, float>(array, name, out);
      break;
    case NpyDtype::kFloat64:
      status = ConvertValues<To, double>(array, name, out);
      break;
    default:
      return WrongDtype(array, name, "float16, float32, float64");
  }
  if (!status.ok()) return status;
  return out;
}

}  // namespace

absl::string_view NpyDtypeName(NpyDtype dtype) {
  switch (dtype) {
    case NpyDtype::kBool:
      return "bool";
    case NpyDtype::kUint8:
      return "uint8";
    case NpyDtype::kUint16:
      return "uint16";
    case NpyDtype::kInt32:
      return "int32";
    case NpyDtype::kInt64:
      return "int64";
    case NpyDtype::kFloat16:
      return "float16";
    case NpyDtype::kFloat32:
      return "float32";
    case NpyDtype::kFloat64:
      return "float64";
  }
  return "?";
}

int64_t NpyItemSize(NpyDtype dtype) {
  switch (dtype) {
    case NpyDtype::kBool:
    case NpyDtype::kUint8:
      return 1;
    case NpyDtype::kUint16:
    case NpyDtype::kFloat16:
      return 2;
    case NpyDtype::kInt32:
    case NpyDtype::kFloat32:
      return 4;
    case NpyDtype::kInt64:
    case NpyDtype::kFloat64:
      return 8;
  }
  return 0;
}

int64_t NpyArray::size() const { return static_cast<int64_t>(bytes.size()) / NpyItemSize(dtype); }

std::string NpyShapeString(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

const NpyArray* FindArray(const NpzArrays& arrays, absl::string_view name) {
  for (const auto& [key, array] : arrays) {
    if (key == name) return &array;
  }
  return nullptr;
}

absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes, absl::string_view name) {
  absl::StatusOr<io_internal::NpyHeader> header = io_internal::ParseNpyHeader(bytes, name);
  if (!header.ok()) return header.status();
  const absl::string_view data = bytes.substr(static_cast<size_t>(header->data_offset));
  if (static_cast<int64_t>(data.size()) != header->data_size) {
    return absl::DataLossError(absl::StrCat(
        name, ": ", data.size(), " data bytes, but shape ", NpyShapeString(header->shape), " of ",
        NpyDtypeName(header->dtype), " needs ", header->data_size));
  }
  return NpyArray{header->dtype, std::move(header->shape), {data.begin(), data.end()}};
}

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  return ParseNpy(*bytes, path);
}

absl::StatusOr<std::string> SerializeNpy(const NpyArray& array) {
  if (absl::Status status = CheckBytes(array, "array"); !status.ok()) return status;
  const absl::string_view comma = array.shape.size() == 1 ? "," : "";  // (3,) is a tuple, (3) not
  std::string header = absl::StrCat("{'descr': '", io_internal::NpyDescr(array.dtype),
                                    "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(array.shape, ", "), comma, "), }");
  // The format asks for data aligned to 64 bytes and a newline at the end of the header.
  const size_t preamble = 10;
  header.append(63 - (preamble + header.size()) % 64, ' ');
  header.push_back('\n');
  std::string out("\x93NUMPY\x01\x00", 8);
  out.push_back(static_cast<char>(header.size() & 0xff));
  out.push_back(static_cast<char>(header.size() >> 8));
  out.append(header);
  out.append(array.bytes.begin(), array.bytes.end());
  return out;
}

absl::Status WriteNpy(const std::string& path, const NpyArray& array) {
  const absl::StatusOr<std::string> bytes = SerializeNpy(array);
  if (!bytes.ok()) return bytes.status();
  return WriteFileBytes(path, *bytes);
}

absl::StatusOr<std::vector<int32_t>> ToInt32(const NpyArray& array, absl::string_view name) {
  return ToIntegers<int32_t>(array, name);
}
absl::StatusOr<std::vector<int64_t>> ToInt64(const NpyArray& array, absl::string_view name) {
  return ToIntegers<int64_t>(array, name);
}
absl::StatusOr<std::vector<float>> ToFloat32(const NpyArray& array, absl::string_view name) {
  return ToFloats<float>(array, name);
}
absl::StatusOr<std::vector<double>> ToFloat64(const NpyArray& array, absl::string_view name) {
  return ToFloats<double>(array, name);
}

NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const uint8_t> values) {
  return MakeArray(std::move(shape), values);
}
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const uint16_t> values) {
  return MakeArray(std::move(shape), values);
}
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int32_t> values) {
  return MakeArray(std::move(shape), values);
}
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const int64_t> values) {
  return MakeArray(std::move(shape), values);
}
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const float> values) {
  return MakeArray(std::move(shape), values);
}
NpyArray MakeNpyArray(std::vector<int64_t> shape, absl::Span<const double> values) {
  return MakeArray(std::move(shape), values);
}

}  // namespace voxconv
