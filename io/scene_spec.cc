// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/scene_spec.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace voxconv {
namespace {

constexpr absl::string_view kPrefix = "scene:";

template <typename T>
std::string JoinNames(const std::vector<T>& items) {
  return absl::StrJoin(items, ", ",
                       [](std::string* out, const T& item) { absl::StrAppend(out, item.name); });
}

// Whole numbers without an exponent.
std::string Text(double value) {
  if (value == std::floor(value)) return absl::StrCat(static_cast<int64_t>(value));
  return absl::StrCat(value);
}

absl::Status SetParam(const SceneInfo& info, absl::string_view key, absl::string_view value,
                      SceneSpec& spec) {
  const auto param = std::find_if(info.params.begin(), info.params.end(),
                                  [&](const SceneParam& p) { return p.name == key; });
  if (param == info.params.end()) {
    return absl::NotFoundError(absl::StrCat("scene:", info.name, ": unknown parameter '",
                                            absl::CEscape(key),
                                            "'; allowed: ", JoinNames(info.params)));
  }
  double number = 0;
  const bool is_number = absl::SimpleAtod(value, &number);
  if (!is_number || !(number >= param->min && number <= param->max) ||
      (param->integer && number != std::floor(number))) {
    return absl::InvalidArgumentError(
        absl::StrCat("scene:", info.name, ": ", key, "=", absl::CEscape(value), ": allowed ",
                     param->integer ? "are integers" : "are numbers", " from ", Text(param->min),
                     " to ", Text(param->max)));
  }
  spec.values[param->name] = number;
  return absl::OkStatus();
}

}  // namespace

bool IsSceneSpec(absl::string_view input) { return absl::StartsWith(input, kPrefix); }

absl::StatusOr<SceneSpec> ParseSceneSpec(absl::string_view spec) {
  absl::string_view rest = spec;
  if (!absl::ConsumePrefix(&rest, kPrefix)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CEscape(spec), "': a scene is written scene:NAME?key=value&…"));
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('?', 1));
  const std::vector<SceneInfo>& scenes = ListScenes();
  const auto info = std::find_if(scenes.begin(), scenes.end(),
                                 [&](const SceneInfo& s) { return s.name == parts.first; });
  if (info == scenes.end()) {
    return absl::NotFoundError(absl::StrCat("scene:", absl::CEscape(parts.first),
                                            ": unknown scene; allowed: ", JoinNames(scenes)));
  }
  SceneSpec out;
  out.name = info->name;
  for (const SceneParam& param : info->params) out.values[param.name] = param.default_value;
  std::set<absl::string_view> given;
  for (const absl::string_view pair : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (absl::Status status = SetParam(*info, entry.first, entry.second, out); !status.ok()) {
      return status;
    }
    if (!given.insert(entry.first).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("scene:", info->name, ": ", entry.first, " is given twice"));
    }
  }
  return out;
}

}  // namespace voxconv
