// SPDX-License-Identifier: Apache-2.0
// The STL half of io/mesh_file.h.
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/text_lines.h"

namespace voxconv::io_internal {
namespace {

constexpr size_t kStlHeader = 84;  // 80 bytes of text and the number of facets
constexpr size_t kStlFacet = 50;   // a normal, three corners, two more bytes

void AppendLastTriangle(Mesh& mesh) {
  const int32_t end = static_cast<int32_t>(mesh.vertices.size() / 3);
  mesh.triangles.push_back({end - 3, end - 2, end - 1});
}

Mesh ParseBinaryStl(absl::string_view bytes) {
  Mesh mesh;
  for (size_t at = kStlHeader; at < bytes.size(); at += kStlFacet) {
    float values[12];
    std::memcpy(values, bytes.data() + at, sizeof(values));
    mesh.vertices.insert(mesh.vertices.end(), values + 3, values + 12);
    AppendLastTriangle(mesh);
  }
  return mesh;
}

absl::StatusOr<Mesh> ParseTextStl(absl::string_view bytes, absl::string_view name) {
  Mesh mesh;
  int corners = 0;
  bool open = false;  // within a loop
  TextLines lines(bytes, name);
  while (lines.Next()) {
    const absl::string_view word = lines.words()[0];
    if (word == "outer") {
      if (open) return lines.Error("a loop within a loop");
      open = true;
      corners = 0;
    } else if (word == "vertex") {
      if (!open || ++corners > 3 || !lines.Numbers(1, 3, mesh.vertices)) {
        return lines.Error("a vertex that is not one of three numbers and three in a loop");
      }
    } else if (word == "endloop") {
      if (!open || corners != 3) return lines.Error("a loop that has not three vertices");
      open = false;
      AppendLastTriangle(mesh);
    } else if (word != "solid" && word != "facet" && word != "endfacet" && word != "endsolid") {
      return lines.Error(absl::StrCat(TextLines::Shown(word), " is no STL statement"));
    }
  }
  if (open) return absl::DataLossError(absl::StrCat(name, ": is truncated within a facet"));
  return mesh;
}

}  // namespace

absl::StatusOr<Mesh> ParseStl(absl::string_view bytes, absl::string_view name) {
  // 32-bit vertex numbers.
  if (bytes.size() > size_t{std::numeric_limits<int32_t>::max()} / 3 * kStlFacet) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has more than 2^31 vertices"));
  }
  uint32_t facets = 0;
  if (bytes.size() >= kStlHeader) std::memcpy(&facets, bytes.data() + 80, sizeof(facets));
  // Binary files may begin with "solid", too.
  if (bytes.size() >= kStlHeader && bytes.size() == kStlHeader + kStlFacet * size_t{facets}) {
    return ParseBinaryStl(bytes);
  }
  if (absl::StartsWith(bytes, "solid")) return ParseTextStl(bytes, name);
  if (bytes.size() < kStlHeader) {
    return absl::DataLossError(absl::StrCat(name, ": is not an STL file"));
  }
  return absl::DataLossError(absl::StrCat(name, ": is not an STL file, or damaged: ", bytes.size(),
                                          " bytes; ", facets, " facets take ",
                                          kStlHeader + kStlFacet * size_t{facets}));
}

}  // namespace voxconv::io_internal
