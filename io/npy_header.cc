// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/npy_header.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace voxconv::io_internal {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxDimensions = 32;  // NumPy's own limit

struct DtypeRow {
  NpyDtype dtype;
  absl::string_view descr;
};
constexpr DtypeRow kDtypes[] = {
    {NpyDtype::kBool, "|b1"},    {NpyDtype::kUint8, "|u1"},   {NpyDtype::kUint16, "<u2"},
    {NpyDtype::kInt32, "<i4"},   {NpyDtype::kInt64, "<i8"},   {NpyDtype::kFloat16, "<f2"},
    {NpyDtype::kFloat32, "<f4"}, {NpyDtype::kFloat64, "<f8"},
};

// Reads the Python literal of a header, {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}:
// just what NumPy writes, nothing that a Python parser would also take.
class HeaderReader {
 public:
  HeaderReader(absl::string_view text, absl::string_view name) : text_(text), name_(name) {}

  absl::Status Read(NpyHeader& header);

 private:
  absl::Status ReadEntry(NpyHeader& header);
  absl::Status ReadDtype(NpyHeader& header);
  absl::Status ReadOrder();
  absl::Status ReadShape(NpyHeader& header);
  std::optional<absl::string_view> QuotedString();

  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }
  bool Consume(absl::string_view token) {
    SkipSpace();
    if (!absl::StartsWith(text_, token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": .npy header: ", what));
  }

  absl::string_view text_;
  absl::string_view name_;
  bool have_dtype_ = false;
  bool have_order_ = false;
  bool have_shape_ = false;
};

absl::Status HeaderReader::Read(NpyHeader& header) {
  if (!Consume("{")) return Error("expected '{'");
  while (!Consume("}")) {
    if (absl::Status status = ReadEntry(header); !status.ok()) return status;
    if (!Consume(",")) {
      if (Consume("}")) break;
      return Error("expected ',' or '}' after an entry");
    }
  }
  SkipSpace();
  if (!text_.empty()) return Error("unexpected text after '}'");
  if (!have_dtype_ || !have_order_ || !have_shape_) {
    return Error("needs 'descr', 'fortran_order' and 'shape'");
  }
  return absl::OkStatus();
}

absl::Status HeaderReader::ReadEntry(NpyHeader& header) {
  const std::optional<absl::string_view> key = QuotedString();
  if (!key.has_value()) return Error("expected a quoted key");
  if (!Consume(":")) return Error("expected ':' after a key");
  if (*key == "descr" && !std::exchange(have_dtype_, true)) return ReadDtype(header);
  if (*key == "fortran_order" && !std::exchange(have_order_, true)) return ReadOrder();
  if (*key == "shape" && !std::exchange(have_shape_, true)) return ReadShape(header);
  return Error("an unknown or repeated key");
}

absl::Status HeaderReader::ReadDtype(NpyHeader& header) {
  const std::optional<absl::string_view> descr = QuotedString();
  if (!descr.has_value()) return Error("structured dtypes are not supported");
  for (const DtypeRow& row : kDtypes) {
    if (row.descr == *descr) {
      header.dtype = row.dtype;
      return absl::OkStatus();
    }
  }
  std::string allowed;
  for (const DtypeRow& row : kDtypes) absl::StrAppend(&allowed, " ", row.descr);
  return Error(
      absl::StrCat("dtype '", absl::CEscape(*descr), "' is not supported; allowed:", allowed));
}

absl::Status HeaderReader::ReadOrder() {
  if (Consume("False")) return absl::OkStatus();
  if (Consume("True")) {
    return Error("Fortran order is not supported; save with numpy.ascontiguousarray");
  }
  return Error("fortran_order is neither True nor False");
}

absl::Status HeaderReader::ReadShape(NpyHeader& header) {
  if (!Consume("(")) return Error("shape is not a tuple");
  while (!Consume(")")) {
    SkipSpace();
    size_t digits = 0;
    while (digits < text_.size() && absl::ascii_isdigit(text_[digits])) ++digits;
    int64_t extent = 0;
    if (!absl::SimpleAtoi(text_.substr(0, digits), &extent)) {
      return Error("shape holds something that is not a count below 2^63");
    }
    text_.remove_prefix(digits);
    header.shape.push_back(extent);
    if (header.shape.size() > kMaxDimensions) return Error("shape has more than 32 dimensions");
    if (!Consume(",")) {
      if (Consume(")")) break;
      return Error("expected ',' or ')' in shape");
    }
  }
  return absl::OkStatus();
}

std::optional<absl::string_view> HeaderReader::QuotedString() {
  SkipSpace();
  if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
  const size_t end = text_.find(text_[0], 1);
  if (end == absl::string_view::npos) return std::nullopt;
  const absl::string_view content = text_.substr(1, end - 1);
  text_.remove_prefix(end + 1);
  return content;
}

absl::StatusOr<absl::string_view> HeaderText(absl::string_view bytes, absl::string_view name) {
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not a .npy array"));
  }
  const auto truncated = [&] {
    return absl::DataLossError(absl::StrCat(name, ": .npy header is truncated"));
  };
  if (bytes.size() < 8) return truncated();
  const int major = static_cast<uint8_t>(bytes[6]);
  if (major != 1 && major != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": .npy version ", major, " is not supported; allowed: 1 and 2"));
  }
  const size_t length_size = major == 1 ? 2 : 4;
  const size_t begin = 8 + length_size;
  if (bytes.size() < begin) return truncated();
  size_t length = 0;
  for (size_t i = 0; i < length_size; ++i) {
    length |= static_cast<size_t>(static_cast<uint8_t>(bytes[8 + i])) << (8 * i);
  }
  if (bytes.size() - begin < length) return truncated();
  return bytes.substr(begin, length);
}

}  // namespace

absl::string_view NpyDescr(NpyDtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row.descr;
  }
  return "";
}

absl::StatusOr<int64_t> NpyByteSize(absl::Span<const int64_t> shape, int64_t item_size,
                                    absl::string_view name) {
  int64_t size = item_size;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": shape ", NpyShapeString(shape), " has a negative extent"));
    }
    if (extent == 0) empty = true;
  }
  if (empty) return 0;
  for (const int64_t extent : shape) {
    if (size > std::numeric_limits<int64_t>::max() / extent) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": shape ", NpyShapeString(shape), " overflows 2^63 bytes"));
    }
    size *= extent;
  }
  return size;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes, absl::string_view name) {
  const absl::StatusOr<absl::string_view> text = HeaderText(bytes, name);
  if (!text.ok()) return text.status();
  NpyHeader header;
  if (absl::Status status = HeaderReader(*text, name).Read(header); !status.ok()) return status;
  const absl::StatusOr<int64_t> size = NpyByteSize(header.shape, NpyItemSize(header.dtype), name);
  if (!size.ok()) return size.status();
  header.data_offset = static_cast<int64_t>(text->data() + text->size() - bytes.data());
  header.data_size = *size;
  return header;
}

}  // namespace voxconv::io_internal
