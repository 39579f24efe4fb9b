// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/registry.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

bool IsPluginName(absl::string_view name) {
  if (name.empty() || !absl::ascii_islower(name[0])) return false;
  for (char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '_') return false;
  }
  return true;
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

// Suites run every variant, and list all of them first.
absl::Status CheckNumVariants(const OptionSchema& schema) {
  constexpr size_t kMostVariants = 4096;
  size_t variants = 1;
  for (const OptionSpec& spec : schema.specs()) {
    if (spec.type == OptionSpec::Type::kBool) variants *= 2;
    if (spec.type == OptionSpec::Type::kEnum) variants *= spec.choices.size();
    if (variants <= kMostVariants) continue;
    return absl::InvalidArgumentError(absl::StrCat("its enum and bool options have more than ",
                                                   kMostVariants, " combinations with option '",
                                                   spec.name, "'; make some of them int options"));
  }
  return absl::OkStatus();
}

// kInvalidArgument names an option of a grid that the plugin does not have.
absl::Status CheckGrids(const PluginDescription& description) {
  const auto check = [&](const OptionAxis& axis) {
    if (description.options.Find(axis.option) != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a grid has the option '", axis.option, "', which the plugin does not have"));
  };
  for (const OptionGrid& grid : description.grids) {
    if (!grid.where.option.empty()) VOXCONV_RETURN_IF_ERROR(check(grid.where));
    for (const OptionAxis& axis : grid.axes) VOXCONV_RETURN_IF_ERROR(check(axis));
  }
  return absl::OkStatus();
}

// The options text of a spec by its parts: what holds on every backend, and what holds on one.
// "cuda.streams=4" is "streams=4" on CUDA, and is left out elsewhere.
struct SpecParts {
  std::string name;
  std::vector<std::string> everywhere;
  std::vector<std::pair<std::string, std::string>> on_backend;  // backend, "key=value"
  std::set<std::string> defaults;                               // "key=value"

  // The spec as `backend` takes it. An empty word: without what holds on one backend.
  std::string On(absl::string_view backend) const {
    std::vector<std::string> items = everywhere;
    for (const auto& [word, item] : on_backend) {
      if (word != backend) continue;
      // A spec in full names the default, too.
      const auto is_default = [key = item.substr(0, item.find('=') + 1),
                               this](const std::string& other) {
        return absl::StartsWith(other, key) && defaults.contains(other);
      };
      items.erase(std::remove_if(items.begin(), items.end(), is_default), items.end());
      items.push_back(item);
    }
    return absl::StrCat(name, items.empty() ? "" : ":", absl::StrJoin(items, ","));
  }
};

// A name with a point that the plugin's schema has is an option like others. `entries` are those of
// a family.
template <typename Entries>
absl::StatusOr<SpecParts> SplitByBackend(const Entries& entries, absl::string_view spec) {
  VOXCONV_ASSIGN_OR_RETURN(const PluginSpec parsed, ParsePluginSpec(spec));
  SpecParts parts{.name = parsed.name, .everywhere = {}, .on_backend = {}, .defaults = {}};
  if (parsed.options.empty()) return parts;
  const auto entry = entries.find(parsed.name);
  if (entry != entries.end()) {
    for (const OptionSpec& option : entry->second.description.options.specs()) {
      parts.defaults.insert(absl::StrCat(option.name, "=", option.default_value));
    }
  }
  for (const absl::string_view item : absl::StrSplit(parsed.options, ',')) {
    const absl::string_view key = item.substr(0, item.find('='));
    const size_t point = key.find('.');
    const bool own =
        entry != entries.end() && entry->second.description.options.Find(key) != nullptr;
    const absl::string_view word = point == absl::string_view::npos ? "" : key.substr(0, point);
    if (!own && (word == BackendKind::kCpu.name() || word == BackendKind::kCuda.name())) {
      parts.on_backend.emplace_back(word, item.substr(point + 1));
    } else {
      parts.everywhere.emplace_back(item);
    }
  }
  return parts;
}

// ",cuda.streams=4": what holds on one backend, checked, without what is the default anyway.
absl::StatusOr<std::string> OnOneBackend(const OptionSchema& schema, const SpecParts& parts) {
  std::string text;
  for (const auto& [word, item] : parts.on_backend) {
    absl::StatusOr<Options> options = Options::Parse(schema, item);
    if (!options.ok()) return StatusAt(absl::StrCat("on ", word), options.status());
    const std::string value = options->ToShortString();
    if (!value.empty()) absl::StrAppend(&text, ",", word, ".", value);
  }
  return text;
}

std::string JoinSpec(absl::string_view name, absl::string_view options,
                     absl::string_view on_one_backend) {
  if (options.empty() && !on_one_backend.empty()) on_one_backend.remove_prefix(1);
  const bool none = options.empty() && on_one_backend.empty();
  return absl::StrCat(name, none ? "" : ":", options, on_one_backend);
}

}  // namespace

template <typename Plugin>
absl::Status PluginFamily<Plugin>::Describe(PluginDescription description) {
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
  absl::Status status = description.options.Check();
  status.Update(CheckNumVariants(description.options));
  status.Update(CheckGrids(description));
  if (!status.ok()) {
    return StatusAt(absl::StrCat(family_, " plugin '", name, "'"), status);
  }
  if (!entries_.try_emplace(name, Entry{std::move(description), {}}).second) {
    return absl::AlreadyExistsError(
        absl::StrCat(family_, " plugin '", name, "' is registered already"));
  }
  return absl::OkStatus();
}

template <typename Plugin>
absl::Status PluginFamily<Plugin>::Implement(absl::string_view name, BackendKind backend,
                                             Factory create) {
  if (!create) {
    return absl::InvalidArgumentError(absl::StrCat(family_, " plugin '", name, "' has no factory"));
  }
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    return absl::NotFoundError(
        absl::StrCat(family_, " plugin '", name, "' is implemented, but not described"));
  }
  if (!it->second.factories.try_emplace(backend, std::move(create)).second) {
    return absl::AlreadyExistsError(absl::StrCat(
        family_, " plugin '", name, "' is implemented for backend ", backend.name(), " already"));
  }
  return absl::OkStatus();
}

template <typename Plugin>
absl::Status PluginFamily<Plugin>::Register(PluginDescription description, BackendKind backend,
                                            Factory create) {
  const std::string name = description.name;
  if (!create) return Implement(name, backend, std::move(create));  // refused
  VOXCONV_RETURN_IF_ERROR(Describe(std::move(description)));
  return Implement(name, backend, std::move(create));
}

template <typename Plugin>
void PluginFamily<Plugin>::Share(BackendKind backend, BackendKind other) {
  for (auto& [name, entry] : entries_) {
    const auto it = entry.factories.find(backend);
    if (it != entry.factories.end()) entry.factories.try_emplace(other, it->second);
  }
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
  if (!options.ok()) return StatusAt(absl::StrCat(family_, " ", parsed.name), options.status());
  return std::pair<const Entry*, Options>(&it->second, *std::move(options));
}

template <typename Plugin>
absl::StatusOr<std::unique_ptr<const Plugin>> PluginFamily<Plugin>::Create(
    absl::string_view spec, BackendKind backend) const {
  VOXCONV_ASSIGN_OR_RETURN(const SpecParts parts, SplitByBackend(entries_, spec));
  VOXCONV_ASSIGN_OR_RETURN(auto resolved, Resolve(parts.On(backend.name())));
  const std::string& name = resolved.first->description.name;
  const std::map<BackendKind, Factory>& factories = resolved.first->factories;
  const auto it = factories.find(backend);
  if (it == factories.end()) {
    return absl::UnimplementedError(absl::StrCat(
        family_, " ", name, ": it has no implementation for backend ", backend.name(), "; it has ",
        factories.empty()
            ? "none"
            : absl::StrJoin(factories, ", ", [](std::string* out, const auto& factory) {
                absl::StrAppend(out, factory.first.name());
              })));
  }
  const std::string label = absl::StrCat(family_, " ", name);
  const PluginCallScope scope(label, "its factory");
  absl::StatusOr<std::unique_ptr<const Plugin>> plugin =
      NonNull(WithoutExceptions([&, &options = resolved.second]() -> decltype(plugin) {
                return it->second(std::move(options));
              }),
              "its factory");
  if (!plugin.ok()) return StatusAt(label, plugin.status());
  (*plugin)->SetLabel(label);
  return plugin;
}

template <typename Plugin>
absl::StatusOr<std::string> PluginFamily<Plugin>::Canonical(absl::string_view spec) const {
  VOXCONV_ASSIGN_OR_RETURN(const SpecParts parts, SplitByBackend(entries_, spec));
  VOXCONV_ASSIGN_OR_RETURN(auto resolved, Resolve(parts.On("")));
  VOXCONV_ASSIGN_OR_RETURN(const std::string on_one_backend,
                           OnOneBackend(resolved.first->description.options, parts));
  return JoinSpec(parts.name, resolved.second.ToShortString(), on_one_backend);
}

template <typename Plugin>
absl::StatusOr<std::string> PluginFamily<Plugin>::InFull(absl::string_view spec) const {
  VOXCONV_ASSIGN_OR_RETURN(const SpecParts parts, SplitByBackend(entries_, spec));
  VOXCONV_ASSIGN_OR_RETURN(auto resolved, Resolve(parts.On("")));
  VOXCONV_ASSIGN_OR_RETURN(const std::string on_one_backend,
                           OnOneBackend(resolved.first->description.options, parts));
  return JoinSpec(parts.name, resolved.second.ToString(), on_one_backend);
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::SpecsOf(
    BackendKind backend,
    const std::function<std::vector<std::string>(const PluginDescription&)>& option_texts) const {
  std::vector<std::string> specs;
  for (const auto& [name, entry] : entries_) {
    if (!entry.factories.contains(backend)) continue;
    std::vector<std::string> own;
    bool any_works = false;
    for (const std::string& text : option_texts(entry.description)) {
      absl::StatusOr<std::string> canonical = Canonical(absl::StrCat(name, ":", text));
      // An extra variant that does not parse must not vanish, and neither must one with which the
      // factory throws: they are kept, and fail where they run.
      const std::string spec = canonical.ok() ? *canonical : absl::StrCat(name, ":", text);
      const absl::Status made = canonical.ok() ? Create(spec, backend).status() : absl::OkStatus();
      if (!made.ok() && !absl::IsInternal(made)) continue;
      any_works = any_works || made.ok();
      if (std::find(own.begin(), own.end(), spec) == own.end()) own.push_back(spec);
    }
    // Unusable tells of a plugin with which nothing can be made.
    if (any_works) specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::Variants(BackendKind backend) const {
  return SpecsOf(backend, [](const PluginDescription& description) {
    std::vector<std::string> texts = OptionProduct(description.options, /*bools=*/true);
    texts.insert(texts.end(), description.extra_variants.begin(), description.extra_variants.end());
    return texts;
  });
}

template <typename Plugin>
std::vector<std::pair<std::string, absl::Status>> PluginFamily<Plugin>::Unusable(
    BackendKind backend) const {
  const std::vector<std::string> variants = Variants(backend);
  std::vector<std::pair<std::string, absl::Status>> unusable;
  for (const auto& [name, entry] : entries_) {
    const auto is_own = [&name = name](const std::string& spec) {
      return spec.substr(0, spec.find(':')) == name;
    };
    if (std::any_of(variants.begin(), variants.end(), is_own)) continue;
    unusable.emplace_back(name, Create(name, backend).status());
  }
  return unusable;
}

template <typename Plugin>
std::vector<std::string> PluginFamily<Plugin>::EnumVariants(BackendKind backend) const {
  return SpecsOf(backend, [](const PluginDescription& description) {
    return OptionProduct(description.options, /*bools=*/false);
  });
}

template class PluginFamily<Mapping>;
template class PluginFamily<Dataflow>;
template class PluginFamily<OutputCoords>;

}  // namespace voxconv
