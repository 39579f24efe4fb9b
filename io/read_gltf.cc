// SPDX-License-Identifier: Apache-2.0
// The glTF half of io/mesh_file.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/json_file.h"
#include "voxconv/io/mesh_file.h"

namespace voxconv::io_internal {
namespace {

// Nodes may show one mesh many times; what a file of some kB can ask for ends here.
constexpr int64_t kMostVertices = int64_t{1} << 27;

using Matrix = std::array<double, 16>;  // column by column, as glTF has it
constexpr Matrix kIdentity = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};

Matrix Multiply(const Matrix& a, const Matrix& b) {
  Matrix out = {};
  for (size_t column = 0; column < 4; ++column) {
    for (size_t row = 0; row < 4; ++row) {
      for (size_t k = 0; k < 4; ++k) out[4 * column + row] += a[4 * k + row] * b[4 * column + k];
    }
  }
  return out;
}

// The values of an accessor, as doubles.
struct GltfArray {
  int64_t count = 0;
  size_t components = 0;
  std::vector<double> values;  // [count, components]
};

struct GltfPrimitive {
  int64_t mode = 4;  // 4 triangles, 5 a strip, 6 a fan
  GltfArray position, normal, color, index;
};

class GltfReader {
 public:
  GltfReader(absl::string_view name, const ReadSibling& read_sibling)
      : name_(name), read_sibling_(read_sibling) {}

  absl::StatusOr<Mesh> Read(absl::string_view bytes);

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(name_, ": glTF ", what));
  }
  absl::StatusOr<absl::string_view> TakeChunks(absl::string_view bytes);
  absl::Status ReadBuffers();
  // The element `index` of the document's array `key`, an object.
  absl::StatusOr<const Json*> Item(const char* key, int64_t index) const;
  // A whole number from 0; `fallback` where it is missing, -1 where it is something else.
  static int64_t Whole(const Json& object, const char* key, int64_t fallback);

  absl::StatusOr<absl::string_view> ViewBytes(int64_t view, int64_t& stride) const;
  absl::StatusOr<GltfArray> Accessor(int64_t index, absl::string_view wanted_types) const;
  absl::StatusOr<GltfPrimitive> ReadPrimitive(const Json& primitive) const;
  void AppendVertices(const GltfPrimitive& primitive, const Matrix& transform);
  absl::Status AppendPrimitive(const Json& json, const Matrix& transform);
  absl::Status AppendMesh(int64_t mesh, const Matrix& transform);
  absl::StatusOr<Matrix> NodeMatrix(const Json& node) const;
  absl::StatusOr<std::vector<int64_t>> Roots() const;
  absl::Status AppendNodes();

  absl::string_view name_;
  const ReadSibling& read_sibling_;
  Json json_;
  absl::string_view binary_;  // the second chunk of a .glb
  std::vector<std::string> buffers_;
  Mesh mesh_;
};

int64_t GltfReader::Whole(const Json& object, const char* key, int64_t fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_number_unsigned()) return -1;
  const uint64_t value = found->get<uint64_t>();
  return value <= uint64_t{1} << 40 ? static_cast<int64_t>(value) : -1;
}

absl::StatusOr<const Json*> GltfReader::Item(const char* key, int64_t index) const {
  const auto array = json_.find(key);
  if (array == json_.end() || !array->is_array() || index < 0 ||
      index >= static_cast<int64_t>(array->size()) ||
      !(*array)[static_cast<size_t>(index)].is_object()) {
    return Error(absl::StrCat("has no object ", index, " in '", key, "'"));
  }
  return &(*array)[static_cast<size_t>(index)];
}

// The JSON; the binary chunk is kept aside.
absl::StatusOr<absl::string_view> GltfReader::TakeChunks(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, "glTF")) return bytes;
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  constexpr uint32_t kJsonChunk = 0x4E4F534A, kBinaryChunk = 0x004E4942;
  if (bytes.size() < 20 || word(4) != 2) return Error("binary header is damaged or not version 2");
  if (word(8) > bytes.size()) return Error("is truncated");
  bytes = bytes.substr(0, word(8));
  absl::string_view json;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t length = word(at);
    const uint32_t kind = word(at + 4);
    at += 8;
    if (length > bytes.size() - at) return Error("chunk is truncated");
    if (kind == kJsonChunk && json.empty()) json = bytes.substr(at, length);
    if (kind == kBinaryChunk && binary_.empty()) binary_ = bytes.substr(at, length);
    at += length;
  }
  return json;
}

absl::Status GltfReader::ReadBuffers() {
  const auto list = json_.find("buffers");
  if (list == json_.end()) return absl::OkStatus();
  if (!list->is_array()) return Error("'buffers' is no array");
  for (size_t i = 0; i < list->size(); ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const Json* buffer, Item("buffers", static_cast<int64_t>(i)));
    const auto uri = buffer->find("uri");
    std::string bytes;
    if (uri == buffer->end()) {
      bytes = std::string(binary_);
    } else if (!uri->is_string()) {
      return Error(absl::StrCat("buffer ", i, ": its uri is no text"));
    } else if (absl::string_view text = uri->get_ref<const std::string&>();
               absl::StartsWith(text, "data:")) {
      const size_t comma = text.find(";base64,");
      if (comma == absl::string_view::npos ||
          !absl::Base64Unescape(text.substr(comma + 8), &bytes)) {
        return Error(absl::StrCat("buffer ", i, ": its uri is no base64 data"));
      }
    } else {
      // A plain name: a file beside this one, never one elsewhere.
      if (text.empty() || text[0] == '.' || text.find_first_of("/\\:%") != text.npos) {
        return Error(absl::StrCat("buffer ", i, ": uri '", absl::CEscape(text.substr(0, 60)),
                                  "'; allowed are data and the name of a file in the same folder"));
      }
      VOXCONV_ASSIGN_OR_RETURN(bytes, read_sibling_(std::string(text)));
    }
    const int64_t length = Whole(*buffer, "byteLength", -1);
    if (length < 0 || length > static_cast<int64_t>(bytes.size())) {
      return Error(absl::StrCat("buffer ", i, " has ", bytes.size(),
                                " bytes, fewer than its byteLength or none"));
    }
    buffers_.push_back(std::move(bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> GltfReader::ViewBytes(int64_t view, int64_t& stride) const {
  VOXCONV_ASSIGN_OR_RETURN(const Json* object, Item("bufferViews", view));
  const int64_t buffer = Whole(*object, "buffer", -1);
  const int64_t offset = Whole(*object, "byteOffset", 0);
  const int64_t length = Whole(*object, "byteLength", -1);
  stride = Whole(*object, "byteStride", 0);
  if (buffer < 0 || buffer >= static_cast<int64_t>(buffers_.size()) || offset < 0 || length < 0 ||
      stride < 0 || offset + length > static_cast<int64_t>(buffers_[buffer].size())) {
    return Error(absl::StrCat("bufferView ", view, " reaches past its buffer or is incomplete"));
  }
  return absl::string_view(buffers_[buffer]).substr(offset, length);
}

double LoadComponent(const char* at, int64_t type, bool normalized) {
  const auto load = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    const double most = static_cast<double>(std::numeric_limits<decltype(value)>::max());
    return normalized ? static_cast<double>(value) / most : static_cast<double>(value);
  };
  switch (type) {
    case 5121:
      return load(uint8_t{});
    case 5123:
      return load(uint16_t{});
    case 5125:
      return load(uint32_t{});
    default:
      float value;
      std::memcpy(&value, at, sizeof(value));
      return value;
  }
}

absl::StatusOr<GltfArray> GltfReader::Accessor(int64_t index, absl::string_view wanted) const {
  VOXCONV_ASSIGN_OR_RETURN(const Json* object, Item("accessors", index));
  const auto error = [&](absl::string_view what) {
    return Error(absl::StrCat("accessor ", index, " ", what));
  };
  if (object->contains("sparse")) {
    return error("is sparse, which is not read; save the mesh without sparse accessors");
  }
  const auto type_text = object->find("type");
  const std::string type =
      type_text != object->end() && type_text->is_string() ? type_text->get<std::string>() : "";
  const int64_t component_type = Whole(*object, "componentType", -1);
  const bool is_index = wanted == "SCALAR";
  const bool is_color = absl::StrContains(wanted, "VEC4");
  // Positions and normals are float; indices are unsigned; colours are either.
  const bool is_unsigned =
      component_type == 5121 || component_type == 5123 || component_type == 5125;
  const bool fits = is_index ? is_unsigned : component_type == 5126 || (is_color && is_unsigned);
  if (type.empty() || !absl::StrContains(wanted, type) || !fits) {
    return error(absl::StrCat("has type '", absl::CEscape(type.substr(0, 20)),
                              "' or component type ", component_type, ", which do not fit"));
  }
  GltfArray array;
  array.components = type == "VEC4" ? 4 : type == "VEC3" ? 3 : 1;
  array.count = Whole(*object, "count", -1);
  const int64_t item = component_type == 5121 ? 1 : component_type == 5123 ? 2 : 4;
  const int64_t row = item * static_cast<int64_t>(array.components);
  const int64_t offset = Whole(*object, "byteOffset", 0);
  int64_t stride = 0;
  VOXCONV_ASSIGN_OR_RETURN(const absl::string_view bytes,
                           ViewBytes(Whole(*object, "bufferView", -1), stride));
  if (stride == 0) stride = row;
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (array.count < 1 || offset < 0 || stride < row || offset > size - row ||
      array.count - 1 > (size - row - offset) / stride) {
    return error("reaches past its bufferView");
  }
  array.values.reserve(static_cast<size_t>(array.count) * array.components);
  for (int64_t i = 0; i < array.count; ++i) {
    for (size_t c = 0; c < array.components; ++c) {
      const char* at = bytes.data() + offset + i * stride + static_cast<int64_t>(c) * item;
      array.values.push_back(LoadComponent(at, component_type, is_color));
    }
  }
  return array;
}

absl::StatusOr<GltfPrimitive> GltfReader::ReadPrimitive(const Json& primitive) const {
  GltfPrimitive read;
  read.mode = primitive.is_object() ? Whole(primitive, "mode", 4) : -1;
  if (read.mode < 4 || read.mode > 6) {
    return Error(absl::StrCat("primitive of mode ", read.mode,
                              "; allowed are triangles (4), strips (5) and fans (6)"));
  }
  const auto attributes = primitive.find("attributes");
  if (attributes == primitive.end() || !attributes->is_object()) {
    return Error("primitive has no attributes");
  }
  const auto accessor = [&](const char* key, absl::string_view types) {
    return Accessor(Whole(*attributes, key, -1), types);
  };
  VOXCONV_ASSIGN_OR_RETURN(read.position, accessor("POSITION", "VEC3"));
  if (attributes->contains("NORMAL")) {
    VOXCONV_ASSIGN_OR_RETURN(read.normal, accessor("NORMAL", "VEC3"));
  }
  if (attributes->contains("COLOR_0")) {
    VOXCONV_ASSIGN_OR_RETURN(read.color, accessor("COLOR_0", "VEC3 VEC4"));
  }
  if (primitive.contains("indices")) {
    VOXCONV_ASSIGN_OR_RETURN(read.index, Accessor(Whole(primitive, "indices", -1), "SCALAR"));
  }
  for (const GltfArray* array : {&read.normal, &read.color}) {
    if (array->count == 0 || array->count == read.position.count) continue;
    return Error(absl::StrCat("primitive has ", read.position.count, " positions, but ",
                              array->count, " normals or colours"));
  }
  return read;
}

// A mesh of several primitives has normals and colours where all of them do (see Read).
void GltfReader::AppendVertices(const GltfPrimitive& primitive, const Matrix& transform) {
  const auto at = [&](size_t row, size_t column) { return transform[4 * column + row]; };
  for (int64_t i = 0; i < primitive.position.count; ++i) {
    const double* p = &primitive.position.values[3 * i];
    for (size_t r = 0; r < 3; ++r) {
      mesh_.vertices.push_back(at(r, 0) * p[0] + at(r, 1) * p[1] + at(r, 2) * p[2] + at(r, 3));
    }
  }
  // Normals turn with the cofactors of the transform.
  const auto cofactor = [&](size_t row, size_t column) {
    const size_t r1 = (row + 1) % 3, r2 = (row + 2) % 3;
    const size_t c1 = (column + 1) % 3, c2 = (column + 2) % 3;
    return at(r1, c1) * at(r2, c2) - at(r1, c2) * at(r2, c1);
  };
  for (int64_t i = 0; i < primitive.normal.count; ++i) {
    const double* n = &primitive.normal.values[3 * i];
    for (size_t r = 0; r < 3; ++r) {
      mesh_.normals.push_back(cofactor(r, 0) * n[0] + cofactor(r, 1) * n[1] +
                              cofactor(r, 2) * n[2]);
    }
  }
  for (int64_t i = 0; i < primitive.color.count; ++i) {
    const double* c = &primitive.color.values[i * static_cast<int64_t>(primitive.color.components)];
    mesh_.colors.insert(mesh_.colors.end(), c, c + 3);
  }
}

absl::Status GltfReader::AppendPrimitive(const Json& json, const Matrix& transform) {
  VOXCONV_ASSIGN_OR_RETURN(const GltfPrimitive primitive, ReadPrimitive(json));
  const int64_t vertices = primitive.position.count;
  const int64_t base = static_cast<int64_t>(mesh_.vertices.size() / 3);
  const bool indexed = primitive.index.count > 0;
  const int64_t corners = indexed ? primitive.index.count : vertices;
  if (base + vertices > kMostVertices ||
      static_cast<int64_t>(mesh_.triangles.size()) + corners > kMostVertices) {
    return Error(absl::StrCat("scene has more than ", kMostVertices, " vertices or corners"));
  }
  AppendVertices(primitive, transform);
  std::vector<int32_t> at(static_cast<size_t>(corners));
  for (int64_t i = 0; i < corners; ++i) {
    const int64_t vertex = indexed ? static_cast<int64_t>(primitive.index.values[i]) : i;
    if (vertex >= vertices) {
      return Error(absl::StrCat("primitive names vertex ", vertex, "; there are ", vertices));
    }
    at[i] = static_cast<int32_t>(base + vertex);
  }
  const size_t step = primitive.mode == 4 ? 3 : 1;
  for (size_t i = 0; i + 2 < at.size(); i += step) {
    // Every second triangle of a strip turns the other way round.
    std::array<int32_t, 3> triangle = {at[i], at[i + 1], at[i + 2]};
    if (primitive.mode == 5 && i % 2 == 1) std::swap(triangle[0], triangle[1]);
    if (primitive.mode == 6) triangle[0] = at[0];
    mesh_.triangles.push_back(triangle);
  }
  return absl::OkStatus();
}

absl::Status GltfReader::AppendMesh(int64_t mesh, const Matrix& transform) {
  VOXCONV_ASSIGN_OR_RETURN(const Json* object, Item("meshes", mesh));
  const auto primitives = object->find("primitives");
  if (primitives == object->end() || !primitives->is_array()) {
    return Error(absl::StrCat("mesh ", mesh, " has no primitives"));
  }
  for (const Json& primitive : *primitives) {
    VOXCONV_RETURN_IF_ERROR(AppendPrimitive(primitive, transform));
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix> GltfReader::NodeMatrix(const Json& node) const {
  const auto numbers = [&](const char* key, auto& out) -> absl::Status {
    const auto found = node.find(key);
    if (found == node.end()) return absl::OkStatus();
    if (!found->is_array() || found->size() != out.size()) {
      return Error(absl::StrCat("node: '", key, "' is not of ", out.size(), " numbers"));
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (!(*found)[i].is_number()) return Error(absl::StrCat("node: '", key, "' is no numbers"));
      out[i] = (*found)[i].template get<double>();
    }
    return absl::OkStatus();
  };
  Matrix matrix = kIdentity;
  if (node.contains("matrix")) {
    VOXCONV_RETURN_IF_ERROR(numbers("matrix", matrix));
    return matrix;
  }
  std::array<double, 3> move = {0, 0, 0}, scale = {1, 1, 1};
  std::array<double, 4> q = {0, 0, 0, 1};  // x y z w
  VOXCONV_RETURN_IF_ERROR(numbers("translation", move));
  VOXCONV_RETURN_IF_ERROR(numbers("rotation", q));
  VOXCONV_RETURN_IF_ERROR(numbers("scale", scale));
  const auto [x, y, z, w] = q;
  const double turn[9] = {
      1 - 2 * (y * y + z * z), 2 * (x * y + z * w),     2 * (x * z - y * w),
      2 * (x * y - z * w),     1 - 2 * (x * x + z * z), 2 * (y * z + x * w),
      2 * (x * z + y * w),     2 * (y * z - x * w),     1 - 2 * (x * x + y * y)};
  for (size_t column = 0; column < 3; ++column) {
    for (size_t row = 0; row < 3; ++row) {
      matrix[4 * column + row] = turn[3 * column + row] * scale[column];
    }
    matrix[12 + column] = move[column];
  }
  return matrix;
}

// The nodes of the default scene; without scenes those that are nobody's children.
absl::StatusOr<std::vector<int64_t>> GltfReader::Roots() const {
  const auto listed = [&](const Json& object, const char* key,
                          std::vector<int64_t>& out) -> absl::Status {
    const auto found = object.find(key);
    if (found == object.end()) return absl::OkStatus();
    if (!found->is_array()) return Error(absl::StrCat("'", key, "' is no array"));
    for (const Json& entry : *found) {
      if (!entry.is_number_unsigned()) return Error(absl::StrCat("'", key, "' holds no index"));
      out.push_back(static_cast<int64_t>(std::min<uint64_t>(entry.get<uint64_t>(), INT32_MAX)));
    }
    return absl::OkStatus();
  };
  std::vector<int64_t> roots;
  if (json_.contains("scenes")) {
    VOXCONV_ASSIGN_OR_RETURN(const Json* scene, Item("scenes", Whole(json_, "scene", 0)));
    VOXCONV_RETURN_IF_ERROR(listed(*scene, "nodes", roots));
    return roots;
  }
  const size_t count = json_["nodes"].size();
  std::vector<bool> is_child(count, false);
  for (size_t i = 0; i < count; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const Json* node, Item("nodes", static_cast<int64_t>(i)));
    std::vector<int64_t> children;
    VOXCONV_RETURN_IF_ERROR(listed(*node, "children", children));
    for (const int64_t child : children) {
      if (child < static_cast<int64_t>(count)) is_child[child] = true;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (!is_child[i]) roots.push_back(static_cast<int64_t>(i));
  }
  return roots;
}

absl::Status GltfReader::AppendNodes() {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int64_t> roots, Roots());
  std::vector<std::pair<int64_t, Matrix>> open;  // nodes whose parents were seen
  for (auto root = roots.rbegin(); root != roots.rend(); ++root)
    open.emplace_back(*root, kIdentity);
  std::vector<bool> seen(json_["nodes"].size(), false);
  while (!open.empty()) {
    const auto [index, parent] = open.back();
    open.pop_back();
    VOXCONV_ASSIGN_OR_RETURN(const Json* node, Item("nodes", index));
    if (seen[index]) return Error(absl::StrCat("node ", index, " has two parents or is its own"));
    seen[index] = true;
    VOXCONV_ASSIGN_OR_RETURN(const Matrix own, NodeMatrix(*node));
    const Matrix transform = Multiply(parent, own);
    if (node->contains("mesh")) {
      VOXCONV_RETURN_IF_ERROR(AppendMesh(Whole(*node, "mesh", -1), transform));
    }
    const auto children = node->find("children");
    if (children == node->end()) continue;
    if (!children->is_array()) return Error(absl::StrCat("node ", index, ": no array of children"));
    for (auto child = children->rbegin(); child != children->rend(); ++child) {
      const int64_t number = child->is_number_unsigned() ? child->get<int64_t>() : -1;
      open.emplace_back(number, transform);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Mesh> GltfReader::Read(absl::string_view bytes) {
  VOXCONV_ASSIGN_OR_RETURN(const absl::string_view text, TakeChunks(bytes));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Error(json.status().message());
  json_ = *std::move(json);
  if (!json_.is_object()) return Error("is no JSON object");
  if (const auto required = json_.find("extensionsRequired");
      required != json_.end() && !required->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": glTF requires the extensions ",
                     required->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 100),
                     "; none is read"));
  }
  VOXCONV_RETURN_IF_ERROR(ReadBuffers());
  if (const auto nodes = json_.find("nodes"); nodes != json_.end()) {
    if (!nodes->is_array()) return Error("'nodes' is no array");
    VOXCONV_RETURN_IF_ERROR(AppendNodes());
  } else if (const auto meshes = json_.find("meshes"); meshes != json_.end()) {
    for (size_t i = 0; i < meshes->size(); ++i) {
      VOXCONV_RETURN_IF_ERROR(AppendMesh(static_cast<int64_t>(i), kIdentity));
    }
  }
  if (mesh_.normals.size() != mesh_.vertices.size()) mesh_.normals.clear();
  if (mesh_.colors.size() != mesh_.vertices.size()) mesh_.colors.clear();
  return std::move(mesh_);
}

}  // namespace

absl::StatusOr<Mesh> ParseGltf(absl::string_view bytes, absl::string_view name,
                               const ReadSibling& read_sibling) {
  return GltfReader(name, read_sibling).Read(bytes);
}

}  // namespace voxconv::io_internal
