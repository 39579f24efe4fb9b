// SPDX-License-Identifier: Apache-2.0
// The OBJ half of io/mesh_file.h.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/polygons.h"
#include "voxconv/io/text_lines.h"

namespace voxconv::io_internal {
namespace {

// Statements that say nothing about the surface.
constexpr absl::string_view kPassedOver[] = {
    "vt",    "vp",       "l",        "p",      "g",          "o",
    "s",     "mg",       "usemtl",   "mtllib", "usemap",     "maplib",
    "bevel", "c_interp", "d_interp", "lod",    "shadow_obj", "trace_obj"};

class ObjReader {
 public:
  explicit ObjReader(absl::string_view name) : name_(name) {}

  absl::Status ReadLine(const TextLines& lines);
  absl::StatusOr<Mesh> Finish();

 private:
  absl::Status ReadVertex(const TextLines& lines);
  absl::Status ReadFace(const TextLines& lines);

  absl::string_view name_;
  Mesh mesh_;
  int64_t colored_vertices_ = 0;
  std::vector<double> normals_;  // as listed
  Polygons faces_;
  std::vector<int64_t> corner_normals_;  // of each corner; -1: none
};

// One index of a face, counted from 0; -1 if the word is none. OBJ counts from 1, and negative
// numbers from the last one back. A face may name what follows it; AppendTriangles checks this.
int64_t ObjIndex(absl::string_view word, int64_t count) {
  int64_t index = 0;
  if (!absl::SimpleAtoi(word, &index) || index == 0 || index < -count) return -1;
  return index > 0 ? index - 1 : count + index;
}

absl::Status ObjReader::ReadVertex(const TextLines& lines) {
  const size_t values = lines.words().size() - 1;
  // x y z, then a weight, or a colour, or a weight and a colour.
  if (values != 3 && values != 4 && values != 6 && values != 7) {
    return lines.Error(absl::StrCat("a vertex of ", values, " values; allowed are 3, 4, 6 and 7"));
  }
  if (!lines.Numbers(1, 3, mesh_.vertices)) return lines.Error("a vertex that is not of numbers");
  if (values < 6) return absl::OkStatus();
  if (!lines.Numbers(lines.words().size() - 3, 3, mesh_.colors)) {
    return lines.Error("a colour that is not of numbers");
  }
  ++colored_vertices_;
  return absl::OkStatus();
}

absl::Status ObjReader::ReadFace(const TextLines& lines) {
  const std::vector<absl::string_view>& words = lines.words();
  const int64_t vertices = static_cast<int64_t>(mesh_.vertices.size() / 3);
  const int64_t normals = static_cast<int64_t>(normals_.size() / 3);
  for (size_t i = 1; i < words.size(); ++i) {
    // vertex, vertex/texture, vertex//normal or vertex/texture/normal.
    const size_t first = std::min(words[i].find('/'), words[i].size());
    const size_t second = std::min(words[i].find('/', first + 1), words[i].size());
    const int64_t vertex = ObjIndex(words[i].substr(0, first), vertices);
    if (vertex < 0) {
      return lines.Error(absl::StrCat("a face with vertex ", TextLines::Shown(words[i]),
                                      "; there are ", vertices, " before it"));
    }
    int64_t normal = -1;
    if (second < words[i].size()) {
      normal = ObjIndex(words[i].substr(second + 1), normals);
      if (normal < 0) {
        return lines.Error(absl::StrCat("a face with normal ", TextLines::Shown(words[i]),
                                        "; there are ", normals, " before it"));
      }
    }
    faces_.corners.push_back(vertex);
    corner_normals_.push_back(normal);
  }
  faces_.sizes.push_back(static_cast<int64_t>(words.size()) - 1);
  if (words.size() < 4) {
    return lines.Error(
        absl::StrCat("a face of ", words.size() - 1, " vertices; allowed are 3 or more"));
  }
  return absl::OkStatus();
}

absl::Status ObjReader::ReadLine(const TextLines& lines) {
  const absl::string_view statement = lines.words()[0];
  if (statement == "v") return ReadVertex(lines);
  if (statement == "f" || statement == "fo") return ReadFace(lines);
  if (statement == "vn") {
    return lines.Numbers(1, 3, normals_) ? absl::OkStatus()
                                         : lines.Error("a normal that is not of three numbers");
  }
  if (std::find(std::begin(kPassedOver), std::end(kPassedOver), statement) !=
      std::end(kPassedOver)) {
    return absl::OkStatus();
  }
  return lines.Error(
      absl::StrCat(TextLines::Shown(statement), " is no OBJ statement of a polygon mesh"));
}

absl::StatusOr<Mesh> ObjReader::Finish() {
  const size_t vertices = mesh_.vertices.size() / 3;
  if (colored_vertices_ != static_cast<int64_t>(vertices)) mesh_.colors.clear();
  // A vertex gets the normal of the last corner that names one. One without a normal keeps zero,
  // for which the sampler takes that of the face.
  const int64_t normals = static_cast<int64_t>(normals_.size() / 3);
  for (size_t i = 0; i < corner_normals_.size(); ++i) {
    if (corner_normals_[i] < 0) continue;
    if (faces_.corners[i] >= static_cast<int64_t>(vertices)) continue;  // refused below
    if (corner_normals_[i] >= normals) {
      return absl::InvalidArgumentError(absl::StrCat(
          name_, ": a face names normal ", corner_normals_[i] + 1, "; there are ", normals));
    }
    mesh_.normals.resize(mesh_.vertices.size(), 0.0);
    std::copy_n(normals_.begin() + 3 * corner_normals_[i], 3,
                mesh_.normals.begin() + 3 * faces_.corners[i]);
  }
  VOXCONV_RETURN_IF_ERROR(AppendTriangles(faces_, name_, mesh_));
  return std::move(mesh_);
}

}  // namespace

absl::StatusOr<Mesh> ParseObj(absl::string_view bytes, absl::string_view name) {
  // A backslash joins a line with the next one.
  std::string joined;
  if (bytes.find("\\\n") != absl::string_view::npos ||
      bytes.find("\\\r\n") != absl::string_view::npos) {
    joined = std::string(bytes);
    for (size_t at = 0; (at = joined.find('\\', at)) != std::string::npos; ++at) {
      const size_t end = at + 1 < joined.size() && joined[at + 1] == '\r' ? at + 2 : at + 1;
      if (end < joined.size() && joined[end] == '\n') {
        std::fill(joined.begin() + static_cast<int64_t>(at),
                  joined.begin() + static_cast<int64_t>(end) + 1, ' ');
      }
    }
    bytes = joined;
  }
  TextLines lines(bytes, name);
  ObjReader reader(name);
  while (lines.Next()) VOXCONV_RETURN_IF_ERROR(reader.ReadLine(lines));
  return reader.Finish();
}

}  // namespace voxconv::io_internal
