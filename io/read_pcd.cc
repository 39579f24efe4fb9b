// SPDX-License-Identifier: Apache-2.0
// The PCD half of io/point_file.h.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/point_file.h"
#include "voxconv/io/text_lines.h"

namespace voxconv::io_internal {
namespace {

using Words = std::vector<std::string>;

struct PcdField {
  std::string name;
  char type = 'F';     // F, I or U
  int64_t size = 4;    // bytes of a value
  int64_t count = 1;   // values of a point
  int64_t offset = 0;  // bytes before it in a point
  int64_t column = 0;  // values before it in a point
};

struct PcdHeader {
  std::vector<PcdField> fields;
  int64_t row_size = 0;  // bytes of a point in the binary formats
  int64_t columns = 0;   // values of a point
  int64_t points = 0;
  std::string data;  // "ascii", "binary", "binary_compressed"

  const PcdField* Find(absl::string_view name) const {
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const PcdField& field) { return field.name == name; });
    return found == fields.end() ? nullptr : &*found;
  }
};

absl::Status PcdError(absl::string_view name, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(name, ": PCD ", what));
}

// Counts of at most 2^31: their products below stay within 64 bits.
bool ParseCounts(const Words& words, std::vector<int64_t>& counts) {
  counts.clear();
  for (size_t i = 1; i < words.size(); ++i) {
    int64_t count = 0;
    if (!absl::SimpleAtoi(words[i], &count) || count < 0 || count > (int64_t{1} << 31)) {
      return false;
    }
    counts.push_back(count);
  }
  return !counts.empty();
}

// The lines of the header that are used, as words and numbers.
struct PcdLines {
  Words fields, types, data;  // with their keyword
  std::vector<int64_t> sizes, counts, points, width, height;
};

absl::StatusOr<PcdLines> TakePcdLines(absl::string_view& text, absl::string_view name) {
  PcdLines lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Words words =
        absl::StrSplit(text.substr(0, end), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || absl::StartsWith(words[0], "#")) continue;
    bool understood = true;
    if (words[0] == "FIELDS" || words[0] == "COLUMNS") lines.fields = words;
    if (words[0] == "TYPE") lines.types = words;
    if (words[0] == "SIZE") understood = ParseCounts(words, lines.sizes);
    if (words[0] == "COUNT") understood = ParseCounts(words, lines.counts);
    if (words[0] == "POINTS") understood = ParseCounts(words, lines.points);
    if (words[0] == "WIDTH") understood = ParseCounts(words, lines.width);
    if (words[0] == "HEIGHT") understood = ParseCounts(words, lines.height);
    if (!understood) return PcdError(name, absl::StrCat("header: bad ", words[0], " line"));
    if (words[0] != "DATA") continue;
    lines.data = words;
    return lines;
  }
  return PcdError(name, "header is truncated (no DATA line)");
}

absl::StatusOr<PcdHeader> TakePcdHeader(absl::string_view& text, absl::string_view name) {
  VOXCONV_ASSIGN_OR_RETURN(PcdLines lines, TakePcdLines(text, name));
  const size_t fields = lines.fields.empty() ? 0 : lines.fields.size() - 1;
  if (lines.counts.empty()) lines.counts.assign(fields, 1);
  if (lines.data.size() != 2 || fields == 0 || fields > 1024 || lines.points.size() != 1 ||
      lines.sizes.size() != fields || lines.counts.size() != fields ||
      lines.types.size() != fields + 1) {
    return PcdError(name, "header: FIELDS, SIZE, TYPE, COUNT, POINTS and DATA do not agree");
  }
  if (!lines.width.empty() && !lines.height.empty() &&
      lines.width[0] * lines.height[0] != lines.points[0]) {
    return PcdError(name, absl::StrCat("header: WIDTH ", lines.width[0], " and HEIGHT ",
                                       lines.height[0], " do not give POINTS ", lines.points[0]));
  }
  PcdHeader header;
  for (size_t i = 0; i < fields; ++i) {
    PcdField field{lines.fields[i + 1], lines.types[i + 1][0], lines.sizes[i],
                   lines.counts[i],     header.row_size,       header.columns};
    const bool whole = field.type == 'I' || field.type == 'U';
    const bool sized =
        field.size == 4 || field.size == 8 || (whole && (field.size == 1 || field.size == 2));
    if (lines.types[i + 1].size() != 1 || !(whole || field.type == 'F') || !sized ||
        field.count < 1 || field.count > 65536) {
      return PcdError(name, absl::StrCat("header: field ", TextLines::Shown(field.name),
                                         " has an unknown TYPE, SIZE or COUNT"));
    }
    header.row_size += field.size * field.count;
    header.columns += field.count;
    header.fields.push_back(std::move(field));
  }
  header.points = lines.points[0];
  header.data = lines.data[1];
  return header;
}

// A value with its bits as an unsigned number, since colours are packed in either.
struct PcdValue {
  double real = 0;
  uint32_t packed = 0;
};

PcdValue LoadPcdValue(const char* at, const PcdField& field) {
  PcdValue value;
  const auto load = [&](auto number) {
    std::memcpy(&number, at, sizeof(number));
    value.real = static_cast<double>(number);
  };
  if (field.size >= 4) std::memcpy(&value.packed, at, sizeof(value.packed));
  const bool is_signed = field.type == 'I';
  if (field.type == 'F') {
    field.size == 4 ? load(float{}) : load(double{});
  } else if (field.size == 1) {
    is_signed ? load(int8_t{}) : load(uint8_t{});
  } else if (field.size == 2) {
    is_signed ? load(int16_t{}) : load(uint16_t{});
  } else if (field.size == 4) {
    is_signed ? load(int32_t{}) : load(uint32_t{});
  } else {
    is_signed ? load(int64_t{}) : load(uint64_t{});
  }
  return value;
}

bool ParsePcdValue(absl::string_view word, const PcdField& field, PcdValue& value) {
  if (field.type == 'F') {
    if (!absl::SimpleAtod(word, &value.real)) return false;
    value.packed = std::bit_cast<uint32_t>(static_cast<float>(value.real));
    return true;
  }
  int64_t integer = 0;
  if (!absl::SimpleAtoi(word, &integer)) return false;
  value.real = static_cast<double>(integer);
  value.packed = static_cast<uint32_t>(integer);
  return true;
}

// The fields that are read, and the cloud that they make.
class PcdCloud {
 public:
  PcdCloud(const PcdHeader& header, absl::string_view name) {
    for (const char* field : {"x", "y", "z", "normal_x", "normal_y", "normal_z", "rgb", "rgba"}) {
      used_.push_back(header.Find(field));
    }
    normals_ = used_[3] != nullptr && used_[4] != nullptr && used_[5] != nullptr;
    if (used_[6] == nullptr) used_[6] = used_[7];
    colors_ = used_[6] != nullptr && used_[6]->size == 4;
    if (colors_) cloud_.feature_names.insert(cloud_.feature_names.end(), {"r", "g", "b"});
    if (normals_) cloud_.feature_names.insert(cloud_.feature_names.end(), {"nx", "ny", "nz"});
    for (int axis = 0; axis < 3; ++axis) {
      if (used_[axis] == nullptr) status_ = PcdError(name, "has no field x, y or z");
    }
  }

  const absl::Status& status() const { return status_; }

  // `value` gives a field's first value of the point; false where it is no number.
  template <typename Value>
  bool Append(const Value& value) {
    PcdValue row[7];
    for (size_t i = 0; i < 7; ++i) {
      const bool wanted = i < 3 || (i < 6 ? normals_ : colors_);
      if (wanted && !value(*used_[i], row[i])) return false;
    }
    for (size_t i = 0; i < 3; ++i) cloud_.xyz.push_back(row[i].real);
    for (int shift = 16; colors_ && shift >= 0; shift -= 8) {
      cloud_.features.push_back(static_cast<float>((row[6].packed >> shift) & 0xff) / 255.0f);
    }
    for (size_t i = 3; normals_ && i < 6; ++i) {
      cloud_.features.push_back(static_cast<float>(row[i].real));
    }
    return true;
  }

  PointCloud Take() { return std::move(cloud_); }

 private:
  std::vector<const PcdField*> used_;
  bool normals_ = false, colors_ = false;
  absl::Status status_;
  PointCloud cloud_;
};

absl::Status AppendText(const PcdHeader& header, absl::string_view body, absl::string_view name,
                        PcdCloud& cloud) {
  TextLines lines(body, name);
  int64_t rows = 0;
  while (lines.Next()) {
    const std::vector<absl::string_view>& words = lines.words();
    const bool good =
        static_cast<int64_t>(words.size()) >= header.columns &&
        cloud.Append([&](const PcdField& field, PcdValue& value) {
          return ParsePcdValue(words[static_cast<size_t>(field.column)], field, value);
        });
    if (!good) {
      return PcdError(name, absl::StrCat("row ", rows, " is not of ", header.columns, " numbers"));
    }
    ++rows;
  }
  if (rows == header.points) return absl::OkStatus();
  return PcdError(name, absl::StrCat("holds ", rows, " rows, but its header says ", header.points));
}

// LZF: runs of literal bytes, and copies of what was unpacked before. False where the packed bytes
// do not give exactly `size` bytes.
bool UnpackLzf(absl::string_view packed, size_t size, std::string& out) {
  out.reserve(size);
  size_t at = 0;
  const auto next = [&] { return static_cast<uint8_t>(packed[at++]); };
  while (at < packed.size()) {
    const size_t control = next();
    if (control < 32) {
      const size_t run = control + 1;
      if (run > packed.size() - at || run > size - out.size()) return false;
      out.append(packed.data() + at, run);
      at += run;
      continue;
    }
    size_t length = (control >> 5) + 2;
    if (length == 9) {
      if (at == packed.size()) return false;
      length += next();
    }
    if (at == packed.size()) return false;
    const size_t distance = ((control & 31) << 8) + next() + 1;
    if (distance > out.size() || length > size - out.size()) return false;
    for (size_t i = 0; i < length; ++i) out.push_back(out[out.size() - distance]);
  }
  return out.size() == size;
}

absl::StatusOr<std::string> UnpackBody(const PcdHeader& header, absl::string_view body,
                                       absl::string_view name) {
  uint32_t sizes[2] = {0, 0};  // compressed, uncompressed
  if (body.size() >= sizeof(sizes)) std::memcpy(sizes, body.data(), sizeof(sizes));
  if (body.size() < sizeof(sizes) || body.size() - sizeof(sizes) < sizes[0]) {
    return PcdError(name, absl::StrCat("is truncated: ", body.size(), " data bytes of ",
                                       sizeof(sizes) + sizes[0]));
  }
  if (const int64_t expected = header.points * header.row_size; sizes[1] != expected) {
    return PcdError(
        name, absl::StrCat("unpacks to ", sizes[1], " bytes, but its header says ", expected));
  }
  // Three bytes of LZF stand for at most 264.
  std::string out;
  if (sizes[1] / 88 > sizes[0] || !UnpackLzf(body.substr(sizeof(sizes), sizes[0]), sizes[1], out)) {
    return PcdError(name,
                    absl::StrCat("is damaged: ", sizes[0], " bytes do not unpack to ", sizes[1]));
  }
  return out;
}

}  // namespace

absl::StatusOr<PointCloud> ParsePcd(absl::string_view bytes, absl::string_view name) {
  absl::string_view body = bytes;
  VOXCONV_ASSIGN_OR_RETURN(const PcdHeader header, TakePcdHeader(body, name));
  PcdCloud cloud(header, name);
  VOXCONV_RETURN_IF_ERROR(cloud.status());
  if (header.data == "ascii") {
    VOXCONV_RETURN_IF_ERROR(AppendText(header, body, name, cloud));
    return cloud.Take();
  }
  const bool compressed = header.data == "binary_compressed";
  if (!compressed && header.data != "binary") {
    return PcdError(name, absl::StrCat("DATA ", TextLines::Shown(header.data),
                                       "; allowed are ascii, binary and binary_compressed"));
  }
  std::string unpacked;
  if (compressed) {
    VOXCONV_ASSIGN_OR_RETURN(unpacked, UnpackBody(header, body, name));
    body = unpacked;
  }
  if (const int64_t expected = header.points * header.row_size;
      static_cast<int64_t>(body.size()) < expected) {
    return PcdError(name, absl::StrCat("is truncated: ", body.size(), " data bytes of ", expected));
  }
  for (int64_t point = 0; point < header.points; ++point) {
    cloud.Append([&](const PcdField& field, PcdValue& value) {
      // Compressed files hold field after field, the others point after point.
      const int64_t at = compressed
                             ? header.points * field.offset + point * field.size * field.count
                             : point * header.row_size + field.offset;
      value = LoadPcdValue(body.data() + at, field);
      return true;
    });
  }
  return cloud.Take();
}

}  // namespace voxconv::io_internal
