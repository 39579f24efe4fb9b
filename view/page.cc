// SPDX-License-Identifier: Apache-2.0
#include "voxconv/view/page.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/json_file.h"
#include "voxconv/view/page_parts.h"

namespace voxconv::view {
namespace {

constexpr char kPackageFolder[] = "/usr/share/javascript/three";

// The bytes of an array, least significant first, as browsers read them.
template <typename T>
std::string Base64(const std::vector<T>& values) {
  static_assert(sizeof(T) == 4);
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return absl::Base64Escape(bytes);
}

Json ToJson(const VoxelSet& set) {
  std::vector<int32_t> xyz;
  xyz.reserve(3 * set.coords.size());
  for (const Coordinate& c : set.coords) xyz.insert(xyz.end(), {c.x, c.y, c.z});
  Json colourings = Json::array();
  for (const Colouring& colouring : set.colourings) {
    colourings.push_back({{"name", colouring.name}, {"values", Base64(colouring.values)}});
  }
  return {{"name", set.name},
          {"edge", {set.edge.x, set.edge.y, set.edge.z}},
          {"of", set.of},
          {"xyz", Base64(xyz)},
          {"colourings", std::move(colourings)}};
}

absl::Status CheckSets(absl::Span<const VoxelSet> sets) {
  if (sets.empty()) return absl::InvalidArgumentError("there is no set of voxels to show");
  for (const VoxelSet& set : sets) {
    if (set.coords.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("'", set.name, "' has no voxels to show"));
    }
    if (set.colourings.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", set.name, "' has nothing to colour its voxels by"));
    }
    for (const Colouring& colouring : set.colourings) {
      if (colouring.values.size() == set.coords.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "'", set.name, "', colouring '", colouring.name, "': ", colouring.values.size(),
          " values; it needs one for each of ", set.coords.size(), " voxels"));
    }
  }
  return absl::OkStatus();
}

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON within a script element, which ends at "</script" and changes its meaning at "<!--".
std::string Embedded(const Json& json) {
  return absl::StrReplaceAll(Text(json), {{"<", "\\u003c"}});
}

std::string EscapeHtml(const std::string& text) {
  // By way of JSON, so that what is no UTF-8 is replaced.
  const std::string valid = Json::parse(Text(Json(text))).get<std::string>();
  return absl::StrReplaceAll(
      valid, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

absl::StatusOr<std::string> ReadScript(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFileBytes(path);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "three.js cannot be read (", text.status().message(),
        "); install libjs-three, or let $VOXCONV_THREE_DIR name a folder that has three.min.js and "
        "examples/js/controls/OrbitControls.js"));
  }
  if (absl::StrContains(*text, "</script")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": it has '</script' in it and cannot be part of a page"));
  }
  return text;
}

}  // namespace

absl::StatusOr<Scripts> LoadScripts() {
  const char* given = std::getenv("VOXCONV_THREE_DIR");
  const std::string folder = given != nullptr && *given != '\0' ? given : kPackageFolder;
  Scripts scripts;
  VOXCONV_ASSIGN_OR_RETURN(scripts.three, ReadScript(absl::StrCat(folder, "/three.min.js")));
  VOXCONV_ASSIGN_OR_RETURN(
      scripts.controls, ReadScript(absl::StrCat(folder, "/examples/js/controls/OrbitControls.js")));
  return scripts;
}

absl::StatusOr<std::string> MakePage(const std::string& title,
                                     const std::vector<std::string>& notes,
                                     absl::Span<const VoxelSet> sets, const Scripts& scripts) {
  VOXCONV_RETURN_IF_ERROR(CheckSets(sets));
  Json data = {{"title", title}, {"notes", notes}, {"sets", Json::array()}};
  for (const VoxelSet& set : sets) data["sets"].push_back(ToJson(set));
  return absl::StrCat(kPageHead, "<title>", EscapeHtml(title), "</title>\n", kPageBody,
                      "<script type=\"application/json\" id=\"data\">", Embedded(data),
                      "</script>\n<script>", scripts.three, "</script>\n<script>", scripts.controls,
                      "</script>\n<script>", kPageScript, "</script>\n</body></html>\n");
}

}  // namespace voxconv::view
