// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/json_file.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

absl::Status SyntaxError(absl::string_view text, size_t byte) {
  // The byte is counted from 1, and one past the text where that ends too early.
  const absl::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const size_t line_begin =
      before.rfind('\n') == absl::string_view::npos ? 0 : before.rfind('\n') + 1;
  return absl::InvalidArgumentError(absl::StrCat("not valid JSON: line ",
                                                 1 + std::count(before.begin(), before.end(), '\n'),
                                                 ", column ", before.size() - line_begin + 1));
}

// The parser itself keeps its own stack, but what copies, compares and prints a value calls itself
// for every level. No file of ours is deeper than ten.
constexpr int kMostLevels = 100;

absl::Status CheckDepth(absl::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if ((c == '[' || c == '{') && ++depth > kMostLevels) {
      return absl::InvalidArgumentError(absl::StrCat("JSON of more than ", kMostLevels,
                                                     " nested arrays and objects; allowed are ",
                                                     kMostLevels));
    }
  }
  return absl::OkStatus();
}

// Watches the keys of all objects that are open.
class KeyWatch {
 public:
  bool operator()(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second && repeated_.empty()) {
        repeated_ = absl::StrCat("key '", key, "' stands twice in one object; allowed is once");
      }
    }
    return true;
  }
  const std::string& repeated() const { return repeated_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string repeated_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (absl::Status status = CheckDepth(text); !status.ok()) return status;
  KeyWatch keys;
  try {
    Json json = Json::parse(
        text.begin(), text.end(),
        [&](int, Json::parse_event_t event, const Json& parsed) { return keys(event, parsed); });
    if (!keys.repeated().empty()) return absl::InvalidArgumentError(keys.repeated());
    return json;
  } catch (const Json::parse_error& error) {
    return SyntaxError(text, error.byte);
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("not valid JSON: a number is past the range of double");
  }
}

}  // namespace voxconv
