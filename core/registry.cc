#include "core/registry.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status_macros.h"

namespace voxconv {
namespace {

bool IsPluginName(absl::string_view name) {
  if (name.empty() || !absl::ascii_islower(name[0])) return false;
  for (char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '_') return false;
  }
  return true;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

// Every combination of the schema's enum options, and of its bool options with `bools`, as option
// strings.
std::vector<std::string> OptionProduct(const OptionSchema& schema, bool bools) {
  std::vector<std::string> product = {""};
  for (const OptionSpec& spec : schema.specs()) {
    std::vector<std::string> values;
    if (spec.type == OptionSpec::Type::kEnum) values = spec.choices;
    if (bools && spec.type == OptionSpec::Type::kBool) values = {"false", "true"};
    if (values.empty()) continue;
    std::vector<std::string> next;
    for (const std::string& prefix : product) {
      for (const std::string& value : values) {
        next.push_back(absl::StrCat(prefix, prefix.empty() ? "" : ",", spec.name, "=", value));
      }
    }
    product = std::move(next);
  }
  return product;
}

}  // namespace

template <typename Plugin>
absl::Status PluginFamily<Plugin>::Register(PluginDescription description, Factory create) {
  if (!IsPluginName(description.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(family_, " plugin name '", description.name,
                     "': allowed are lower-case letters, digits and _, a letter first"));
  }
  const std::string name = description.name;
  if (name == "reference") {
    return absl::InvalidArgumentError(
        absl::StrCat(family_, " plugin name 'reference': it is verify's own, for the oracle"));
  }
  if (!create) {
    return absl::InvalidArgumentError(absl::StrCat(family_, " plugin '", name, "' has no factory"));
  }
  if (const absl::Status status = description.options.Check(); !status.ok()) {
    return Annotate(status, absl::StrCat(family_, " plugin '", name, "'"));
  }
  if (!entries_.try_emplace(name, Entry{std::move(description), std::move(create)}).second) {
    return absl::AlreadyExistsError(
        absl::StrCat(family_, " plugin '", name, "' is registered already"));
  }
  return absl::OkStatus();
}

template <typename Plugin>
absl::StatusOr<std::pair<const typename PluginFamily<Plugin>::Entry*, Options>>
PluginFamily<Plugin>::Resolve(absl::string_view spec) const {
  VOXCONV_ASSIGN_OR_RETURN(PluginSpec parsed, ParsePluginSpec(spec));
  auto it = entries_.find(parsed.name);
  if (it == entries_.end()) {
    return absl::NotFoundError(absl::StrCat(
        family_, " '", parsed.name, "' is unknown; there are ",
        absl::StrJoin(entries_, ", ",
                      [](std::string* out, const auto& e) { absl::StrAppend(out, e.first); })));
  }
  absl::StatusOr<Options> options = Options::Parse(it->second.description.options, parsed.options);
  if (!options.ok()) return Annotate(options.status(), absl::StrCat(family_, " ", parsed.name));
  return std::pair<const Entry*, Options>(&it->second, *std::move(options));
}

template <typename Plugin>
absl::StatusOr<std::unique_ptr<const Plugin>> PluginFamily<Plugin>::Create(
    absl::string_view spec) const {
  VOXCONV_ASSIGN_OR_RETURN(auto resolved, Resolve(spec));
  const std::string& name = resolved.first->description.name;
  absl::StatusOr<std::unique_ptr<const Plugin>> plugin =
      NonNull(WithoutExceptions([&, &options = resolved.second]() -> decltype(plugin) {
                return resolved.first->create(std::move(options));
              }),
              "its factory");
  if (!plugin.ok()) return Annotate(plugin.status(), absl::StrCat(family_, " ", name));
  return plugin;
}

template <typename Plugin>
absl::StatusOr<std::string> PluginFamily<Plugin>::Canonical(absl::string_view spec) const {
  VOXCONV_ASSIGN_OR_RETURN(auto resolved, Resolve(spec));
  const std::string options = resolved.second.ToShortString();
  return absl::StrCat(resolved.first->description.name, options.empty() ? "" : ":", options);
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::SpecsOf(
    const std::function<std::vector<std::string>(const PluginDescription&)>& option_texts) const {
  std::vector<std::string> specs;
  for (const auto& [name, entry] : entries_) {
    for (const std::string& text : option_texts(entry.description)) {
      absl::StatusOr<std::string> canonical = Canonical(absl::StrCat(name, ":", text));
      // An extra variant that does not parse must not vanish: it is kept, and fails where it runs.
      const std::string spec = canonical.ok() ? *canonical : absl::StrCat(name, ":", text);
      if (canonical.ok() && !Create(spec).ok()) continue;
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
    }
  }
  return specs;
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::Variants() const {
  return SpecsOf([](const PluginDescription& description) {
    std::vector<std::string> texts = OptionProduct(description.options, /*bools=*/true);
    texts.insert(texts.end(), description.extra_variants.begin(), description.extra_variants.end());
    return texts;
  });
}

template <typename Plugin>
std::vector<std::pair<std::string, absl::Status>> PluginFamily<Plugin>::Unusable() const {
  const std::vector<std::string> variants = Variants();
  std::vector<std::pair<std::string, absl::Status>> unusable;
  for (const auto& [name, entry] : entries_) {
    const auto is_own = [&name = name](const std::string& spec) {
      return spec.substr(0, spec.find(':')) == name;
    };
    if (std::any_of(variants.begin(), variants.end(), is_own)) continue;
    unusable.emplace_back(name, Create(name).status());
  }
  return unusable;
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::EnumVariants() const {
  return SpecsOf([](const PluginDescription& description) {
    return OptionProduct(description.options, /*bools=*/false);
  });
}

template class PluginFamily<Mapping>;
template class PluginFamily<Dataflow>;
template class PluginFamily<OutputCoords>;

}  // namespace voxconv
