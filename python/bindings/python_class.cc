// SPDX-License-Identifier: Apache-2.0
#include "python_class.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "arguments.h"

namespace voxconv::python {
namespace {

std::string Text(const std::string& what, nb::handle value) {
  std::string text;
  if (!nb::isinstance<nb::str>(value) || !nb::try_cast(value, text)) {
    ThrowTypeError(absl::StrCat(what, ": must be a string"));
  }
  return text;
}

std::vector<std::string> Words(const std::string& what, nb::handle value) {
  if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
    ThrowTypeError(absl::StrCat(what, ": must be a list or a tuple of strings"));
  }
  std::vector<std::string> words;
  for (const nb::handle word : value) words.push_back(Text(what, word));
  return words;
}

// One option of a class: a dict with "default" and, as its type needs them, "min" and "max" or
// "choices"; "help" is for people.
class OptionOfClass {
 public:
  OptionOfClass(std::string name, nb::handle dict)
      : name_(std::move(name)), what_(absl::StrCat("options['", name_, "']")) {
    if (!nb::isinstance<nb::dict>(dict)) ThrowTypeError(absl::StrCat(what_, ": must be a dict"));
    dict_ = nb::borrow<nb::dict>(dict);
    default_ = Entry("default");
    if (default_.is_none()) ThrowValueError(absl::StrCat(what_, ": 'default' is missing"));
    if (const nb::object help = Entry("help"); !help.is_none()) {
      help_ = Text(absl::StrCat(what_, "['help']"), help);
    }
  }

  void AddTo(OptionSchema& schema) const {
    if (nb::isinstance<nb::bool_>(default_)) {
      Allow({});
      schema.Bool(name_, nb::cast<bool>(default_), help_);
    } else if (nb::isinstance<nb::int_>(default_)) {
      Allow({"min", "max"});
      const auto least = Number<int64_t>("min"), most = Number<int64_t>("max");
      schema.Int(name_, Number<int64_t>("default"), least, most, help_);
    } else if (nb::isinstance<nb::float_>(default_)) {
      Allow({"min", "max"});
      const auto least = Number<double>("min"), most = Number<double>("max");
      schema.Float(name_, Number<double>("default"), least, most, help_);
    } else if (nb::isinstance<nb::str>(default_)) {
      Allow({"choices"});
      schema.Enum(name_, Words(absl::StrCat(what_, "['choices']"), Entry("choices")),
                  nb::cast<std::string>(default_), help_);
    } else {
      ThrowTypeError(absl::StrCat(what_, "['default']: ", TypeText(default_),
                                  "; a bool, an int, a float or a str is needed"));
    }
  }

 private:
  nb::object Entry(const char* key) const { return dict_.attr("get")(key, nb::none()); }

  template <typename T>
  T Number(const char* key) const {
    const nb::object value = Entry(key);
    T number = 0;
    if (value.is_none() || !nb::try_cast(value, number)) {
      ThrowValueError(absl::StrCat(what_, ": '", key, "' must be a number that 64 bits hold"));
    }
    return number;
  }

  // Refuses keys that the option's type gives no meaning.
  void Allow(std::vector<std::string> keys) const {
    keys.insert(keys.begin(), {"default", "help"});
    for (const auto& [key, value] : dict_) {
      const std::string name = Text(absl::StrCat(what_, ": a key"), key);
      if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
        ThrowValueError(absl::StrCat(what_, ": '", name, "' has no meaning with a default of ",
                                     TypeText(default_), "; allowed are ",
                                     absl::StrJoin(keys, ", ")));
      }
    }
  }

  std::string name_, what_, help_;
  nb::dict dict_;
  nb::object default_;
};

OptionSchema OptionsOf(nb::handle type) {
  OptionSchema schema;
  const nb::object options = nb::getattr(type, "options", nb::none());
  if (options.is_none()) return schema;
  if (!nb::isinstance<nb::dict>(options)) {
    ThrowTypeError("options: must be a dict of dicts by name");
  }
  for (const auto& [key, value] : nb::borrow<nb::dict>(options)) {
    OptionOfClass(Text("options: a name", key), value).AddTo(schema);
  }
  return schema;
}

nb::object ValueOfOption(const OptionSpec& spec, const Options& options) {
  switch (spec.type) {
    case OptionSpec::Type::kEnum:
      return nb::cast(options.GetEnum(spec.name));
    case OptionSpec::Type::kBool:
      return nb::cast(options.GetBool(spec.name));
    case OptionSpec::Type::kInt:
      return nb::cast(options.GetInt(spec.name));
    case OptionSpec::Type::kFloat:
      return nb::cast(options.GetFloat(spec.name));
  }
  return nb::none();
}

}  // namespace

std::string TextOf(nb::handle type, const char* name, const std::string& otherwise) {
  const nb::object value = nb::getattr(type, name, nb::none());
  return value.is_none() ? otherwise : Text(name, value);
}

bool FlagOf(nb::handle type, const char* name, bool otherwise) {
  const nb::object value = nb::getattr(type, name, nb::none());
  if (value.is_none()) return otherwise;
  if (!nb::isinstance<nb::bool_>(value)) ThrowTypeError(absl::StrCat(name, ": must be a bool"));
  return nb::cast<bool>(value);
}

std::vector<std::string> WordsOf(nb::handle type, const char* name,
                                 const std::vector<std::string>& otherwise) {
  const nb::object value = nb::getattr(type, name, nb::none());
  return value.is_none() ? otherwise : Words(name, value);
}

std::vector<BackendKind> BackendsOf(nb::handle type) {
  std::vector<BackendKind> kinds;
  for (const std::string& word : WordsOf(type, "backends", {"cpu"})) {
    kinds.push_back(ValueOf(ParseBackendKind(word)));
  }
  if (kinds.empty()) ThrowValueError("backends: none; allowed are cpu and cuda");
  return kinds;
}

std::vector<Precision> PrecisionsOf(nb::handle type) {
  std::vector<Precision> precisions;
  for (const std::string& word : WordsOf(type, "dtypes", {"f32"})) {
    const absl::StatusOr<Precision> precision = ParsePrecision(word);
    if (!precision.ok() || *precision == Precision::kTf32) {
      ThrowValueError(absl::StrCat("dtypes: '", word, "'; allowed are f32, f16 and bf16"));
    }
    precisions.push_back(*precision);
  }
  if (precisions.empty()) ThrowValueError("dtypes: none; allowed are f32, f16 and bf16");
  return precisions;
}

PluginDescription Describe(nb::handle type, const std::vector<const char*>& methods) {
  if (!nb::isinstance<nb::type_object>(type)) ThrowTypeError("plugin: a class is needed");
  for (const char* method : methods) {
    if (!nb::hasattr(type, method)) {
      ThrowTypeError(absl::StrCat("plugin: the class has no method ", method));
    }
  }
  const std::string doc = TextOf(type, "__doc__", "");
  const std::vector<std::string> lines = absl::StrSplit(doc, '\n', absl::SkipWhitespace());
  return {.name = TextOf(type, "name", ""),
          .summary = TextOf(type, "summary", lines.empty() ? "" : lines[0]),
          .source = TextOf(type, "source", "Python"),
          .options = OptionsOf(type),
          .extra_variants = WordsOf(type, "extra_variants", {})};
}

nb::object Make(nb::handle type, const OptionSchema& schema, const Options& options) {
  nb::dict values;
  for (const OptionSpec& spec : schema.specs()) {
    values[spec.name.c_str()] = ValueOfOption(spec, options);
  }
  return type(**values);
}

}  // namespace voxconv::python
