// SPDX-License-Identifier: Apache-2.0
// The PLY half of io/mesh_file.h.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/polygons.h"

namespace voxconv::io_internal {
namespace {

constexpr size_t kLongestShown = 100;  // of the file, in messages

enum class PlyFormat { kAscii, kLittleEndian, kBigEndian };

struct PlyType {
  size_t size = 0;  // bytes in the binary formats
  bool is_float = false;
  bool is_signed = false;
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
      {"char", "int8", {1, false, true}},    {"uchar", "uint8", {1, false, false}},
      {"short", "int16", {2, false, true}},  {"ushort", "uint16", {2, false, false}},
      {"int", "int32", {4, false, true}},    {"uint", "uint32", {4, false, false}},
      {"float", "float32", {4, true, true}}, {"double", "float64", {8, true, true}},
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
    if (!words.empty() && !ParseHeaderLine(words, header)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": PLY header line '",
                                                     absl::CEscape(line.substr(0, kLongestShown)),
                                                     "' is not understood"));
    }
  }
  return absl::DataLossError(absl::StrCat(name, ": PLY header is truncated (no end_header)"));
}

struct PlyValue {
  double real = 0;
  int64_t integer = 0;  // of integer types alone
};

// Walks the body value by value, whatever its format.
class BodyCursor {
 public:
  BodyCursor(absl::string_view body, PlyFormat format) : body_(body), format_(format) {}

  // Passes one value and returns it; nullopt at the end and for what is no number.
  std::optional<PlyValue> Take(PlyType type) {
    return format_ == PlyFormat::kAscii ? TakeText(type) : TakeBinary(type);
  }

 private:
  std::optional<PlyValue> TakeText(PlyType type) {
    body_ = absl::StripLeadingAsciiWhitespace(body_);
    const auto* end = std::find_if(body_.begin(), body_.end(), absl::ascii_isspace);
    const absl::string_view word(body_.data(), static_cast<size_t>(end - body_.begin()));
    body_.remove_prefix(word.size());
    PlyValue value;
    if (type.is_float)
      return absl::SimpleAtod(word, &value.real) ? std::optional(value) : std::nullopt;
    if (!absl::SimpleAtoi(word, &value.integer)) return std::nullopt;
    value.real = static_cast<double>(value.integer);
    return value;
  }

  std::optional<PlyValue> TakeBinary(PlyType type) {
    if (body_.size() < type.size) return std::nullopt;
    uint64_t bits = 0;
    for (size_t i = 0; i < type.size; ++i) {
      const size_t at = format_ == PlyFormat::kBigEndian ? i : type.size - 1 - i;
      bits = (bits << 8) | static_cast<uint8_t>(body_[at]);
    }
    body_.remove_prefix(type.size);
    PlyValue value;
    if (type.is_float) {
      value.real = type.size == 4 ? double{std::bit_cast<float>(static_cast<uint32_t>(bits))}
                                  : std::bit_cast<double>(bits);
      return value;
    }
    const size_t unused = 64 - 8 * type.size;
    value.integer = type.is_signed ? static_cast<int64_t>(bits << unused) >> unused
                                   : static_cast<int64_t>(bits);
    value.real = static_cast<double>(value.integer);
    return value;
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
    if (element.name == "tristrips" && element.rows > 0) {
      return refused("holds triangle strips, which are not read; save the mesh with faces");
    }
    if (element.name == "face" && element.rows > 0 &&
        std::none_of(element.properties.begin(), element.properties.end(),
                     [&](const PlyProperty& p) { return IsFaceList(element, p); })) {
      return refused("has no property 'vertex_indices'");
    }
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

// Where the values of a vertex go; -1: nowhere.
struct VertexColumns {
  // By property: 0..2 x y z, 3..5 normal, 6..8 colour.
  std::vector<int> slot;
  std::vector<double> scale;
  bool has_normals = false, has_colors = false;
};

absl::StatusOr<VertexColumns> PlanVertex(const PlyElement& element, absl::string_view name) {
  static constexpr absl::string_view kNames[] = {"x",  "y",   "z",     "nx",  "ny",
                                                 "nz", "red", "green", "blue"};
  VertexColumns columns;
  bool found[9] = {};
  for (const PlyProperty& property : element.properties) {
    const auto* const at = std::find(std::begin(kNames), std::end(kNames), property.name);
    const int slot = at == std::end(kNames) ? -1 : static_cast<int>(at - std::begin(kNames));
    columns.slot.push_back(slot);
    // Colours are shares of the type's range.
    const bool is_share = slot >= 6 && !property.value.is_float;
    columns.scale.push_back(is_share ? std::exp2(8.0 * static_cast<double>(property.value.size)) - 1
                                     : 1.0);
    if (slot >= 0) found[slot] = true;
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (found[axis]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": PLY element 'vertex' has no property '", kNames[axis], "'"));
  }
  columns.has_normals = found[3] && found[4] && found[5];
  columns.has_colors = found[6] && found[7] && found[8];
  return columns;
}

class PlyReader {
 public:
  PlyReader(const PlyHeader& header, absl::string_view body, absl::string_view name)
      : header_(header), cursor_(body, header.format), name_(name) {}

  absl::Status Read();
  Mesh& mesh() { return mesh_; }
  const Polygons& faces() const { return faces_; }

 private:
  absl::Status TakeVertex(const PlyElement& element);
  // A row of faces, or of what is passed over. An error has no file's name.
  absl::Status TakeRow(const PlyElement& element);
  static absl::Status Damaged() { return absl::DataLossError("truncated or damaged"); }

  const PlyHeader& header_;
  BodyCursor cursor_;
  absl::string_view name_;
  VertexColumns columns_;
  int64_t vertices_ = 0;  // that a face may name
  Mesh mesh_;             // vertices, normals, colours
  Polygons faces_;
};

absl::Status PlyReader::TakeVertex(const PlyElement& element) {
  double values[9] = {};
  for (size_t i = 0; i < element.properties.size(); ++i) {
    const std::optional<PlyValue> value = cursor_.Take(element.properties[i].value);
    if (!value.has_value()) return Damaged();
    if (columns_.slot[i] >= 0) values[columns_.slot[i]] = value->real / columns_.scale[i];
  }
  mesh_.vertices.insert(mesh_.vertices.end(), values, values + 3);
  if (columns_.has_normals) mesh_.normals.insert(mesh_.normals.end(), values + 3, values + 6);
  if (columns_.has_colors) mesh_.colors.insert(mesh_.colors.end(), values + 6, values + 9);
  return absl::OkStatus();
}

absl::Status PlyReader::TakeRow(const PlyElement& element) {
  for (const PlyProperty& property : element.properties) {
    const bool is_face = IsFaceList(element, property);
    int64_t count = 1;
    if (property.list_count.has_value()) {
      const std::optional<PlyValue> listed = cursor_.Take(*property.list_count);
      if (!listed.has_value() || listed->integer < 0) return Damaged();
      count = listed->integer;
    }
    if (is_face && count < 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("a face of ", count, " vertices; allowed are 3 or more"));
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::optional<PlyValue> value = cursor_.Take(property.value);
      if (!value.has_value()) return Damaged();
      if (!is_face) continue;
      if (value->integer < 0 || value->integer >= vertices_) {
        return absl::InvalidArgumentError(
            absl::StrCat("a face with vertex ", value->integer, "; there are ", vertices_));
      }
      faces_.corners.push_back(value->integer);
    }
    if (is_face) faces_.sizes.push_back(count);
  }
  return absl::OkStatus();
}

absl::Status PlyReader::Read() {
  for (const PlyElement& element : header_.elements) {
    if (element.name != "vertex") continue;
    vertices_ = element.rows;
    VOXCONV_ASSIGN_OR_RETURN(columns_, PlanVertex(element, name_));
  }
  for (const PlyElement& element : header_.elements) {
    const bool is_vertex = element.name == "vertex";
    for (int64_t row = 0; row < element.rows; ++row) {
      const absl::Status status = is_vertex ? TakeVertex(element) : TakeRow(element);
      if (status.ok()) continue;
      return absl::Status(status.code(),
                          absl::StrCat(name_, ": ", status.message(), " at '", element.name,
                                       "' row ", row, " of ", element.rows));
    }
  }
  return absl::OkStatus();
}

PointCloud PointsOf(Mesh& mesh) {
  PointCloud cloud;
  const size_t points = mesh.vertices.size() / 3;
  const bool colors = !mesh.colors.empty(), normals = !mesh.normals.empty();
  if (colors) cloud.feature_names.insert(cloud.feature_names.end(), {"r", "g", "b"});
  if (normals) cloud.feature_names.insert(cloud.feature_names.end(), {"nx", "ny", "nz"});
  cloud.features.reserve(points * cloud.feature_names.size());
  const auto append = [&](const std::vector<double>& rows, size_t point) {
    for (size_t axis = 0; axis < 3; ++axis) {
      cloud.features.push_back(static_cast<float>(rows[3 * point + axis]));
    }
  };
  for (size_t point = 0; point < points; ++point) {
    if (colors) append(mesh.colors, point);
    if (normals) append(mesh.normals, point);
  }
  cloud.xyz = std::move(mesh.vertices);
  return cloud;
}

}  // namespace

absl::StatusOr<std::variant<PointCloud, Mesh>> ParsePly(absl::string_view bytes,
                                                        absl::string_view name) {
  absl::string_view body = bytes;
  VOXCONV_ASSIGN_OR_RETURN(const PlyHeader header, TakeHeader(body, name));
  VOXCONV_RETURN_IF_ERROR(CheckElements(header, name));
  PlyReader reader(header, body, name);
  VOXCONV_RETURN_IF_ERROR(reader.Read());
  if (reader.faces().sizes.empty()) return PointsOf(reader.mesh());
  VOXCONV_RETURN_IF_ERROR(AppendTriangles(reader.faces(), name, reader.mesh()));
  return std::move(reader.mesh());
}

}  // namespace voxconv::io_internal
