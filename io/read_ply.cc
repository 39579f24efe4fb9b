#include "io/check_ply.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv::io_internal {
namespace {

// Open3D's parser copies words into 256 bytes and lines of the header into 1024.
constexpr size_t kLongestWord = 200;
constexpr size_t kLongestLine = 1000;

enum class PlyFormat { kAscii, kLittleEndian, kBigEndian };

struct PlyType {
  size_t size = 0;  // bytes in the binary formats
  bool is_float = false;
};

struct PlyProperty {
  std::string name;
  std::optional<PlyType> list_count;  // set for lists
  PlyType value;
};

struct PlyElement {
  std::string name;
  int64_t rows = 0;
  std::vector<PlyProperty> properties;
};

struct PlyHeader {
  PlyFormat format = PlyFormat::kAscii;
  std::vector<PlyElement> elements;
};

std::optional<PlyType> ParseType(absl::string_view text) {
  struct Row {
    absl::string_view name, alias;
    PlyType type;
  };
  static constexpr Row kTypes[] = {
      {"char", "int8", {1, false}},    {"uchar", "uint8", {1, false}},
      {"short", "int16", {2, false}},  {"ushort", "uint16", {2, false}},
      {"int", "int32", {4, false}},    {"uint", "uint32", {4, false}},
      {"float", "float32", {4, true}}, {"double", "float64", {8, true}},
  };
  for (const Row& row : kTypes) {
    if (text == row.name || text == row.alias) return row.type;
  }
  return std::nullopt;
}

absl::string_view TakeLine(absl::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return absl::StripTrailingAsciiWhitespace(line);
}

// Enters one header line; false when it is not one.
bool ParseHeaderLine(const std::vector<std::string>& words, PlyHeader& header) {
  if (words[0] == "comment" || words[0] == "obj_info") return true;
  if (words[0] == "format" && words.size() == 3) {
    if (words[1] == "binary_little_endian") header.format = PlyFormat::kLittleEndian;
    if (words[1] == "binary_big_endian") header.format = PlyFormat::kBigEndian;
    return absl::StartsWith(words[1], "binary_") == (header.format != PlyFormat::kAscii);
  }
  if (words[0] == "element" && words.size() == 3) {
    PlyElement& element = header.elements.emplace_back();
    element.name = words[1];
    return absl::SimpleAtoi(words[2], &element.rows) && element.rows >= 0;
  }
  if (words[0] != "property" || header.elements.empty()) return false;
  const bool is_list = words.size() == 5 && words[1] == "list";
  if (!is_list && words.size() != 3) return false;
  const std::optional<PlyType> value = ParseType(words[is_list ? 3 : 1]);
  PlyProperty property;
  if (is_list) property.list_count = ParseType(words[2]);
  if (!value.has_value() || (is_list && !property.list_count.has_value())) return false;
  property.value = *value;
  property.name = words.back();
  header.elements.back().properties.push_back(property);
  return true;
}

bool IsTooLong(absl::string_view word) { return word.size() > kLongestWord; }

absl::StatusOr<PlyHeader> TakeHeader(absl::string_view& text, absl::string_view name) {
  if (TakeLine(text) != "ply") {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not a PLY file"));
  }
  PlyHeader header;
  while (!text.empty()) {
    const absl::string_view line = TakeLine(text);
    if (line == "end_header") return header;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const bool too_long =
        line.size() > kLongestLine || std::any_of(words.begin(), words.end(), IsTooLong);
    if (too_long) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": PLY header has a line of ", line.size(), " bytes; allowed are lines up to ",
          kLongestLine, " and words up to ", kLongestWord, " bytes"));
    }
    if (!words.empty() && !ParseHeaderLine(words, header)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": PLY header line '", absl::CEscape(line), "' is not understood"));
    }
  }
  return absl::DataLossError(absl::StrCat(name, ": PLY header is truncated (no end_header)"));
}

// Walks the body value by value, whatever its format.
class BodyCursor {
 public:
  BodyCursor(absl::string_view body, PlyFormat format) : body_(body), format_(format) {}

  // Passes one value and returns it where it is an integer (0 for a float); nullopt at the end.
  std::optional<int64_t> Take(PlyType type) {
    return format_ == PlyFormat::kAscii ? TakeText(type) : TakeBinary(type);
  }

 private:
  std::optional<int64_t> TakeText(PlyType type) {
    body_ = absl::StripLeadingAsciiWhitespace(body_);
    const auto* end = std::find_if(body_.begin(), body_.end(), absl::ascii_isspace);
    const absl::string_view word(body_.data(), static_cast<size_t>(end - body_.begin()));
    body_.remove_prefix(word.size());
    if (IsTooLong(word)) return std::nullopt;
    double real = 0;
    if (type.is_float) {
      return absl::SimpleAtod(word, &real) ? std::optional<int64_t>(0) : std::nullopt;
    }
    int64_t integer = 0;
    return absl::SimpleAtoi(word, &integer) ? std::optional<int64_t>(integer) : std::nullopt;
  }

  std::optional<int64_t> TakeBinary(PlyType type) {
    if (body_.size() < type.size) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = 0; i < type.size && !type.is_float; ++i) {
      const size_t at = format_ == PlyFormat::kBigEndian ? i : type.size - 1 - i;
      value = (value << 8) | static_cast<uint8_t>(body_[at]);
    }
    body_.remove_prefix(type.size);
    return static_cast<int64_t>(value);
  }

  absl::string_view body_;
  PlyFormat format_;
};

bool IsFaceList(const PlyElement& element, const PlyProperty& property) {
  return element.name == "face" &&
         (property.name == "vertex_indices" || property.name == "vertex_index");
}

absl::Status CheckElements(const PlyHeader& header, absl::string_view name) {
  std::set<std::string> names;
  for (const PlyElement& element : header.elements) {
    const auto refused = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": PLY element '", element.name, "' ", why));
    };
    if (!names.insert(element.name).second) return refused("stands twice; allowed is once");
    if (element.properties.empty() && element.rows > 0) return refused("has no properties");
    std::set<std::string> properties;
    for (const PlyProperty& property : element.properties) {
      const bool is_list = property.list_count.has_value();
      const std::string what = absl::StrCat("has the property '", property.name, "' ");
      if (!properties.insert(property.name).second) return refused(absl::StrCat(what, "twice"));
      if (is_list && property.list_count->is_float) {
        return refused(absl::StrCat(what, "with lengths that are no integers"));
      }
      if (element.name == "vertex" && is_list) {
        return refused(absl::StrCat(what, "as a list; allowed is one value"));
      }
      if (IsFaceList(element, property) && (!is_list || property.value.is_float)) {
        return refused(absl::StrCat(what, "that is no list of integers"));
      }
    }
  }
  return absl::OkStatus();
}

// Passes one row. `vertices` is the number that a face may name. An error has no file's name.
absl::Status TakeRow(BodyCursor& cursor, const PlyElement& element, int64_t vertices) {
  const absl::Status truncated = absl::DataLossError("truncated or damaged");
  for (const PlyProperty& property : element.properties) {
    const bool is_face = IsFaceList(element, property);
    int64_t count = 1;
    if (property.list_count.has_value()) {
      const std::optional<int64_t> listed = cursor.Take(*property.list_count);
      if (!listed.has_value() || *listed < 0) return truncated;
      count = *listed;
    }
    if (is_face && count < 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("a face of ", count, " vertices; allowed are 3 or more"));
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::optional<int64_t> value = cursor.Take(property.value);
      if (!value.has_value()) return truncated;
      // A negative index of a binary file was read as a large one.
      if (is_face && (*value < 0 || *value >= vertices)) {
        return absl::InvalidArgumentError(
            absl::StrCat("a face with vertex ", *value, "; there are ", vertices));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPly(absl::string_view bytes, absl::string_view name) {
  absl::string_view text = bytes;
  const absl::StatusOr<PlyHeader> header = TakeHeader(text, name);
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckElements(*header, name); !status.ok()) return status;
  int64_t vertices = 0;
  for (const PlyElement& element : header->elements) {
    if (element.name == "vertex") vertices = element.rows;
  }
  BodyCursor cursor(text, header->format);
  for (const PlyElement& element : header->elements) {
    for (int64_t row = 0; row < element.rows; ++row) {
      const absl::Status status = TakeRow(cursor, element, vertices);
      if (status.ok()) continue;
      return absl::Status(
          status.code(), absl::StrCat(name, ": ", status.message(), " at '", element.name, "' row ",
                                      row, " of ", element.rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace voxconv::io_internal
