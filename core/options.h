// SPDX-License-Identifier: Apache-2.0
// Typed options of a plugin, written and read as one string:
//   sorted_search:variant=double_traversed,block=256
#ifndef VOXCONV_CORE_OPTIONS_H_
#define VOXCONV_CORE_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace voxconv {

// One option of a plugin.
struct OptionSpec {
  enum class Type { kEnum, kBool, kInt, kFloat };
  std::string name;
  Type type;
  std::string default_value;
  std::vector<std::string> choices;     // kEnum
  int64_t min_int = 0, max_int = 0;     // kInt, inclusive
  double min_float = 0, max_float = 0;  // kFloat, inclusive
  std::string help;

  // The allowed values in words: "naive|full", "true|false", "1..4096", "0..1".
  std::string Allowed() const;
};

constexpr const char* ToString(OptionSpec::Type type) {
  switch (type) {
    case OptionSpec::Type::kEnum:
      return "enum";
    case OptionSpec::Type::kBool:
      return "bool";
    case OptionSpec::Type::kInt:
      return "int";
    case OptionSpec::Type::kFloat:
      return "float";
  }
  return "?";
}

// The options of a plugin, in the order in which they were added. Adding does not check; Check
// does.
class OptionSchema {
 public:
  // Each adds an option and returns the schema. `help` is one clause. Ranges are inclusive.
  OptionSchema& Enum(std::string name, std::vector<std::string> choices, std::string default_value,
                     std::string help);
  OptionSchema& Bool(std::string name, bool default_value, std::string help);
  OptionSchema& Int(std::string name, int64_t default_value, int64_t min, int64_t max,
                    std::string help);
  OptionSchema& Float(std::string name, double default_value, double min, double max,
                      std::string help);

  const std::vector<OptionSpec>& specs() const { return specs_; }
  // The option called `name`, or null. Owned by the schema.
  const OptionSpec* Find(absl::string_view name) const;

  // Checks that every option can be written and read. Names must be unique. Names and choices must
  // be words of letters, digits, '_', '-' and '.'. An enum must have choices, each of them once.
  // min must be <= max. The default must be allowed. kInvalidArgument names the option.
  absl::Status Check() const;

 private:
  OptionSchema& Add(OptionSpec spec);
  std::vector<OptionSpec> specs_;
};

// The option values of one plugin instance. Every option of its schema has a value. Copyable; owns
// its values, and does not refer to the schema.
class Options {
 public:
  // `text` is "" or "key=value,key=value". Options that it does not name have their defaults.
  // kInvalidArgument for an unknown key, a repeated key, and a value that is of the wrong type or
  // out of range. The message gives the key, the value and what is allowed.
  static absl::StatusOr<Options> Parse(const OptionSchema& schema, absl::string_view text);

  // The value of an option. Throws std::invalid_argument if the schema has no option of that name
  // and type, because there is no value to return. This is a mistake of the plugin that asks, and
  // becomes an error that names it (core/plugin_call.h).
  const std::string& GetEnum(absl::string_view name) const;
  bool GetBool(absl::string_view name) const;
  int64_t GetInt(absl::string_view name) const;
  double GetFloat(absl::string_view name) const;

  // All options in the schema's order. Parse of this text gives equal Options.
  std::string ToString() const;
  // The same, with only the options that differ from their defaults.
  std::string ToShortString() const;

  friend bool operator==(const Options& a, const Options& b) { return a.values_ == b.values_; }

 private:
  struct Value {
    OptionSpec::Type type;
    std::string text;  // canonical
    int64_t integer = 0;
    double real = 0;
    friend bool operator==(const Value&, const Value&) = default;
  };
  const Value& Get(absl::string_view name, OptionSpec::Type type) const;
  static absl::StatusOr<Value> ParseValue(const OptionSpec& spec, absl::string_view text);

  std::vector<std::pair<std::string, Value>> values_;  // schema order
  std::vector<std::string> defaults_;                  // canonical texts, same order
};

// "name" or "name:options" split at the first colon; an empty name is refused.
struct PluginSpec {
  std::string name;
  std::string options;
};
absl::StatusOr<PluginSpec> ParsePluginSpec(absl::string_view text);

}  // namespace voxconv

#endif  // VOXCONV_CORE_OPTIONS_H_
