// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/json_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace voxconv::measure {

void RefuseValue(const std::string& path, const Json& value, absl::string_view allowed,
                 absl::Status& error) {
  if (!error.ok()) return;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest) text = absl::StrCat(text.substr(0, kLongest), "...");
  const std::string what = path.empty() ? "the file" : absl::StrCat("key '", path, "'");
  error = absl::InvalidArgumentError(absl::StrCat(what, " is ", text, "; allowed ", allowed));
}

JsonReader::JsonReader(const Json& object, std::string path, absl::Status& error)
    : object_(object), path_(std::move(path)), error_(error) {
  if (!object.is_object()) RefuseValue(path_, object, "is an object", error_);
}

JsonReader::JsonReader(const Json& object, std::string path, absl::Span<const char* const> keys,
                       absl::Status& error)
    : JsonReader(object, std::move(path), error) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    const bool known = std::any_of(keys.begin(), keys.end(),
                                   [&key = key](const char* name) { return key == name; });
    if (known || !error_.ok()) continue;
    error_ = absl::InvalidArgumentError(absl::StrCat(
        "key '", PathOf(key.c_str()), "' is unknown; allowed are ", absl::StrJoin(keys, ", ")));
  }
}

std::string JsonReader::PathOf(const char* key) const {
  return path_.empty() ? key : absl::StrCat(path_, ".", key);
}

const Json* JsonReader::Find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonReader::Refuse(const char* key, absl::string_view allowed) {
  if (!error_.ok()) return;
  const Json* value = Find(key);
  if (value != nullptr) return RefuseValue(PathOf(key), *value, allowed, error_);
  error_ = absl::InvalidArgumentError(
      absl::StrCat("key '", PathOf(key), "' is missing; allowed ", allowed));
}

std::string JsonReader::Text(const char* key, const std::optional<std::string>& fallback) {
  const Json* value = Find(key);
  if (value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty()) {
    return value->get<std::string>();
  }
  if (value != nullptr || !fallback.has_value()) Refuse(key, "is a text that is not empty");
  return fallback.value_or("");
}

std::string JsonReader::OneOf(const char* key, absl::Span<const std::string> allowed,
                              const std::optional<std::string>& fallback) {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_string()) {
    const std::string text = value->get<std::string>();
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  }
  Refuse(key, absl::StrCat("are ", absl::StrJoin(allowed, ", ")));
  return fallback.value_or("");
}

int64_t JsonReader::Integer(const char* key, int64_t least, int64_t most,
                            const std::optional<int64_t>& fallback) {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_number_integer()) {
    // An unsigned number past the signed range must not wrap into it.
    const bool fits =
        !value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (fits && value->get<int64_t>() >= least && value->get<int64_t>() <= most) {
      return value->get<int64_t>();
    }
  }
  Refuse(key, absl::StrCat("are whole numbers ", least, " .. ", most));
  return fallback.value_or(least);
}

std::optional<double> JsonReader::Number(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  Refuse(key, "are numbers");
  return std::nullopt;
}

bool JsonReader::Flag(const char* key, bool fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(key, "are true and false");
  return fallback;
}

std::vector<std::string> JsonReader::Texts(const char* key) {
  std::vector<std::string> texts;
  Each(key, [&](const Json& element, const std::string& path) {
    if (element.is_string()) return texts.push_back(element.get<std::string>());
    RefuseValue(path, element, "are texts", error_);
  });
  return texts;
}

std::optional<std::string> JsonReader::Triple(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return value->dump();
  if (value->is_array() && value->size() == 3 &&
      std::all_of(value->begin(), value->end(),
                  [](const Json& element) { return element.is_number_integer(); })) {
    return absl::StrCat((*value)[0].dump(), ",", (*value)[1].dump(), ",", (*value)[2].dump());
  }
  Refuse(key, "are one whole number or [x, y, z]");
  return std::nullopt;
}

const Json& JsonReader::Object(const char* key) {
  static const Json* const kNothing = new Json(Json::object());
  const Json* value = Find(key);
  if (value != nullptr && value->is_object()) return *value;
  Refuse(key, "is an object");
  return *kNothing;
}

void JsonReader::Each(const char* key,
                      const std::function<void(const Json&, const std::string&)>& each) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return Refuse(key, "is an array");
  for (size_t i = 0; i < value->size(); ++i) {
    each((*value)[i], absl::StrCat(PathOf(key), "[", i, "]"));
  }
}

}  // namespace voxconv::measure
