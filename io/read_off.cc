// SPDX-License-Identifier: Apache-2.0
// The OFF half of io/mesh_file.h.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/polygons.h"
#include "voxconv/io/text_lines.h"

namespace voxconv::io_internal {
namespace {

struct OffHeader {
  bool colors = false, normals = false;
  int64_t vertices = 0, faces = 0;
};

bool OffCounts(const std::vector<absl::string_view>& words, size_t first, OffHeader& header) {
  return words.size() >= first + 2 && absl::SimpleAtoi(words[first], &header.vertices) &&
         absl::SimpleAtoi(words[first + 1], &header.faces) && header.vertices >= 0 &&
         header.faces >= 0;
}

absl::StatusOr<OffHeader> ReadOffHeader(TextLines& lines, absl::string_view name) {
  OffHeader header;
  if (!lines.Next()) return absl::DataLossError(absl::StrCat(name, ": is not an OFF file"));
  std::vector<absl::string_view> words = lines.words();
  absl::string_view keyword = words[0];
  header.colors = absl::ConsumePrefix(&keyword, "C");
  header.normals = absl::ConsumePrefix(&keyword, "N");
  if (!absl::ConsumePrefix(&keyword, "OFF")) {
    return lines.Error(
        absl::StrCat(TextLines::Shown(words[0]), " is none of OFF, COFF, NOFF and CNOFF"));
  }
  // The counts stand in the next line, or behind the keyword, in some collections without a space.
  size_t first = 1;
  if (!keyword.empty()) {
    words[0] = keyword;
    first = 0;
  } else if (words.size() == 1) {
    if (!lines.Next()) return lines.Error("the counts are missing");
    words = lines.words();
    first = 0;
  }
  if (OffCounts(words, first, header)) return header;
  return lines.Error("needs the numbers of vertices and faces; binary files are not read");
}

absl::Status ReadOffVertex(const OffHeader& header, const TextLines& lines, Mesh& mesh) {
  size_t at = 3;
  bool good = lines.Numbers(0, 3, mesh.vertices);
  if (header.normals) {
    good = good && lines.Numbers(at, 3, mesh.normals);
    at += 3;
  }
  if (header.colors) good = good && lines.Numbers(at, 3, mesh.colors);
  return good ? absl::OkStatus() : lines.Error("a vertex with too few numbers");
}

absl::Status ReadOffFace(const TextLines& lines, Polygons& faces) {
  const std::vector<absl::string_view>& words = lines.words();
  int64_t size = 0;
  if (!absl::SimpleAtoi(words[0], &size) || size < 3) {
    return lines.Error(
        absl::StrCat("a face of ", TextLines::Shown(words[0]), " corners; allowed are 3 or more"));
  }
  // What follows is the face's colour.
  if (static_cast<int64_t>(words.size()) - 1 < size) {
    return lines.Error(absl::StrCat("a face of ", size, " corners lists ", words.size() - 1));
  }
  for (int64_t i = 1; i <= size; ++i) {
    int64_t corner = 0;
    const absl::string_view word = words[static_cast<size_t>(i)];
    if (!absl::SimpleAtoi(word, &corner)) {
      return lines.Error(absl::StrCat("a face with vertex ", TextLines::Shown(word)));
    }
    faces.corners.push_back(corner);
  }
  faces.sizes.push_back(size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Mesh> ParseOff(absl::string_view bytes, absl::string_view name) {
  TextLines lines(bytes, name);
  VOXCONV_ASSIGN_OR_RETURN(const OffHeader header, ReadOffHeader(lines, name));
  Mesh mesh;
  Polygons faces;
  const auto truncated = [&](absl::string_view what, int64_t row, int64_t of) {
    return absl::DataLossError(
        absl::StrCat(name, ": is truncated at ", what, " ", row, " of ", of));
  };
  for (int64_t i = 0; i < header.vertices; ++i) {
    if (!lines.Next()) return truncated("vertex", i, header.vertices);
    VOXCONV_RETURN_IF_ERROR(ReadOffVertex(header, lines, mesh));
  }
  for (int64_t i = 0; i < header.faces; ++i) {
    if (!lines.Next()) return truncated("face", i, header.faces);
    VOXCONV_RETURN_IF_ERROR(ReadOffFace(lines, faces));
  }
  // Colours are bytes or shares.
  if (std::any_of(mesh.colors.begin(), mesh.colors.end(), [](double c) { return c > 1; })) {
    for (double& value : mesh.colors) value /= 255;
  }
  VOXCONV_RETURN_IF_ERROR(AppendTriangles(faces, name, mesh));
  return mesh;
}

}  // namespace voxconv::io_internal
