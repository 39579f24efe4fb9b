// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/options.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

// The shortest text that reads back as the same double.
std::string CanonicalFloat(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

absl::Status BadValue(const OptionSpec& spec, absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", spec.name, "='", text, "': allowed are ", spec.Allowed()));
}

// What a spec and a case's id can hold: none of ':', ',', '=' and '/'.
bool IsWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

absl::Status BadWord(absl::string_view what, absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", text, "': allowed are letters, digits, _, - and ., one at least"));
}

absl::Status BadOption(const OptionSpec& spec, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("option ", spec.name, " ", what));
}

}  // namespace

std::string OptionSpec::Allowed() const {
  switch (type) {
    case Type::kEnum:
      return absl::StrJoin(choices, "|");
    case Type::kBool:
      return "true|false";
    case Type::kInt:
      return absl::StrCat(min_int, "..", max_int);
    case Type::kFloat:
      return absl::StrCat(CanonicalFloat(min_float), "..", CanonicalFloat(max_float));
  }
  return "";
}

OptionSchema& OptionSchema::Add(OptionSpec spec) {
  specs_.push_back(std::move(spec));
  return *this;
}

OptionSchema& OptionSchema::Enum(std::string name, std::vector<std::string> choices,
                                 std::string default_value, std::string help) {
  return Add({.name = std::move(name),
              .type = OptionSpec::Type::kEnum,
              .default_value = std::move(default_value),
              .choices = std::move(choices),
              .help = std::move(help)});
}

OptionSchema& OptionSchema::Bool(std::string name, bool default_value, std::string help) {
  return Add({.name = std::move(name),
              .type = OptionSpec::Type::kBool,
              .default_value = default_value ? "true" : "false",
              .help = std::move(help)});
}

OptionSchema& OptionSchema::Int(std::string name, int64_t default_value, int64_t min, int64_t max,
                                std::string help) {
  return Add({.name = std::move(name),
              .type = OptionSpec::Type::kInt,
              .default_value = absl::StrCat(default_value),
              .min_int = min,
              .max_int = max,
              .help = std::move(help)});
}

OptionSchema& OptionSchema::Float(std::string name, double default_value, double min, double max,
                                  std::string help) {
  return Add({.name = std::move(name),
              .type = OptionSpec::Type::kFloat,
              .default_value = CanonicalFloat(default_value),
              .min_float = min,
              .max_float = max,
              .help = std::move(help)});
}

const OptionSpec* OptionSchema::Find(absl::string_view name) const {
  auto it = std::find_if(specs_.begin(), specs_.end(),
                         [name](const OptionSpec& spec) { return spec.name == name; });
  return it == specs_.end() ? nullptr : &*it;
}

absl::Status OptionSchema::Check() const {
  for (const OptionSpec& spec : specs_) {
    if (!IsWord(spec.name)) return BadWord("option name", spec.name);
    if (Find(spec.name) != &spec) return BadOption(spec, "is declared more than once");
    if (spec.type == OptionSpec::Type::kEnum && spec.choices.empty()) {
      return BadOption(spec, "has no choices; an enum needs one");
    }
    std::set<std::string> choices;
    for (const std::string& choice : spec.choices) {
      if (!IsWord(choice)) return BadWord(absl::StrCat("choice of option ", spec.name), choice);
      if (!choices.insert(choice).second) {
        return BadOption(spec, absl::StrCat("has the choice '", choice, "' more than once"));
      }
    }
    if (spec.min_int > spec.max_int || !(spec.min_float <= spec.max_float)) {
      return BadOption(spec, absl::StrCat("allows ", spec.Allowed(),
                                          "; its least must not be past "
                                          "its largest"));
    }
  }
  // Every option takes its default now.
  const absl::Status defaults = Options::Parse(*this, "").status();
  if (defaults.ok()) return defaults;
  return absl::InvalidArgumentError(absl::StrCat("default of ", defaults.message()));
}

absl::StatusOr<Options::Value> Options::ParseValue(const OptionSpec& spec, absl::string_view text) {
  Value value{.type = spec.type};
  switch (spec.type) {
    case OptionSpec::Type::kEnum:
      if (std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end()) {
        return BadValue(spec, text);
      }
      value.text = std::string(text);
      break;
    case OptionSpec::Type::kBool:
      if (text != "true" && text != "false") return BadValue(spec, text);
      value.integer = text == "true";
      value.text = std::string(text);
      break;
    case OptionSpec::Type::kInt:
      if (!absl::SimpleAtoi(text, &value.integer) || value.integer < spec.min_int ||
          value.integer > spec.max_int) {
        return BadValue(spec, text);
      }
      value.text = absl::StrCat(value.integer);
      break;
    case OptionSpec::Type::kFloat:
      if (!absl::SimpleAtod(text, &value.real) || !std::isfinite(value.real) ||
          value.real < spec.min_float || value.real > spec.max_float) {
        return BadValue(spec, text);
      }
      value.text = CanonicalFloat(value.real);
      break;
  }
  return value;
}

absl::StatusOr<Options> Options::Parse(const OptionSchema& schema, absl::string_view text) {
  std::map<std::string, std::string, std::less<>> given;
  if (!text.empty()) {
    for (absl::string_view item : absl::StrSplit(text, ',')) {
      const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
      if (parts.size() != 2 || parts[0].empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("option '", item, "' is not of the form key=value"));
      }
      if (schema.Find(parts[0]) == nullptr) {
        std::vector<std::string> names;
        for (const OptionSpec& spec : schema.specs()) names.push_back(spec.name);
        return absl::InvalidArgumentError(
            absl::StrCat("option '", parts[0], "' is unknown; ",
                         names.empty() ? "there are none"
                                       : absl::StrCat("there are ", absl::StrJoin(names, ", "))));
      }
      if (!given.emplace(parts[0], parts[1]).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("option '", parts[0], "' is given more than once"));
      }
    }
  }
  Options options;
  for (const OptionSpec& spec : schema.specs()) {
    auto it = given.find(spec.name);
    VOXCONV_ASSIGN_OR_RETURN(Value value,
                             ParseValue(spec, it == given.end() ? spec.default_value : it->second));
    options.values_.emplace_back(spec.name, std::move(value));
    VOXCONV_ASSIGN_OR_RETURN(Value default_value, ParseValue(spec, spec.default_value));
    options.defaults_.push_back(default_value.text);
  }
  return options;
}

const Options::Value& Options::Get(absl::string_view name, OptionSpec::Type type) const {
  auto it = std::find_if(values_.begin(), values_.end(),
                         [name](const auto& value) { return value.first == name; });
  if (it == values_.end()) {
    throw std::invalid_argument(
        absl::StrCat("option '", name, "' is read, and the plugin's schema has none of that name"));
  }
  if (it->second.type != type) {
    throw std::invalid_argument(
        absl::StrCat("option '", name, "' is read as ", voxconv::ToString(type),
                     "; by the plugin's schema it is ", voxconv::ToString(it->second.type)));
  }
  return it->second;
}

const std::string& Options::GetEnum(absl::string_view name) const {
  return Get(name, OptionSpec::Type::kEnum).text;
}
bool Options::GetBool(absl::string_view name) const {
  return Get(name, OptionSpec::Type::kBool).integer != 0;
}
int64_t Options::GetInt(absl::string_view name) const {
  return Get(name, OptionSpec::Type::kInt).integer;
}
double Options::GetFloat(absl::string_view name) const {
  return Get(name, OptionSpec::Type::kFloat).real;
}

std::string Options::ToString() const {
  return absl::StrJoin(values_, ",", [](std::string* out, const auto& value) {
    absl::StrAppend(out, value.first, "=", value.second.text);
  });
}

std::string Options::ToShortString() const {
  std::vector<std::string> items;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].second.text == defaults_[i]) continue;
    items.push_back(absl::StrCat(values_[i].first, "=", values_[i].second.text));
  }
  return absl::StrJoin(items, ",");
}

absl::StatusOr<PluginSpec> ParsePluginSpec(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (parts[0].empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plugin '", text, "' has no name; write name or name:key=value,..."));
  }
  return PluginSpec{parts[0], parts.size() == 2 ? parts[1] : ""};
}

}  // namespace voxconv
