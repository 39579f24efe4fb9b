// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/session.h"

#include <cstdint>
#include <iostream>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/cli/examples.h"
#include "voxconv/cli/exit_guard.h"
#include "voxconv/cli/suggest.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/measure/product_rate.h"

namespace voxconv::cli {

namespace {

// Boost reads -1 as an unsigned number and wraps it.
absl::Status RefuseNegatives(const po::parsed_options& parsed,
                             const po::options_description& options) {
  for (const auto& option : parsed.options) {
    const auto* semantic = dynamic_cast<const po::typed_value<uint64_t>*>(
        options.find(option.string_key, false).semantic().get());
    if (semantic == nullptr || option.value.empty() || option.value[0][0] != '-') continue;
    return absl::InvalidArgumentError(absl::StrCat("--", option.string_key, " ", option.value[0],
                                                   ": allowed are whole numbers from 0"));
  }
  return absl::OkStatus();
}

// What Boost reads into the type of an option.
std::string AllowedValues(const po::option_description& option) {
  const po::value_semantic* semantic = option.semantic().get();
  const auto takes = [&](auto zero) {
    return dynamic_cast<const po::typed_value<decltype(zero)>*>(semantic) != nullptr;
  };
  const auto up_to = [](auto most) {
    return absl::StrCat("allowed are whole numbers of at most ", most);
  };
  if (takes(int{})) return up_to(std::numeric_limits<int>::max());
  if (takes(int64_t{})) return up_to(std::numeric_limits<int64_t>::max());
  if (takes(uint64_t{})) return up_to(std::numeric_limits<uint64_t>::max());
  if (takes(double{})) return "allowed are numbers, such as 0.5";
  if (takes(bool{})) return "allowed are true and false";
  return "allowed is what --help says";
}

// Boost says that a value is invalid, and not what is allowed.
absl::Status Store(const po::parsed_options& parsed, const po::options_description& options,
                   po::variables_map& values) {
  const auto refuse = [&](const po::validation_error& error) {
    for (const auto& option : parsed.options) {
      if (absl::StrCat("--", option.string_key) != error.get_option_name()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", option.string_key, " ", absl::StrJoin(option.value, " "), ": ",
                       AllowedValues(options.find(option.string_key, false))));
    }
    return absl::InvalidArgumentError(absl::StrCat(error.what(), " (see --help)"));
  };
  try {
    po::store(parsed, values);
  } catch (const po::invalid_option_value& error) {
    return refuse(error);
  } catch (const po::invalid_bool_value& error) {
    return refuse(error);
  }
  return absl::OkStatus();
}

absl::Status EmptyValue(absl::string_view argument) {
  return absl::InvalidArgumentError(
      absl::StrCat(argument, " '': is empty; allowed is a value of one character or more"));
}

// An empty text is what a variable that is not set leaves in a script; it would pass for an option
// that is not given.
absl::Status RefuseEmpty(const po::parsed_options& parsed) {
  for (const auto& option : parsed.options) {
    for (const std::string& value : option.value) {
      if (!value.empty()) continue;
      const std::string argument = option.position_key < 0
                                       ? absl::StrCat("--", option.string_key)
                                       : absl::AsciiStrToUpper(option.string_key);
      return EmptyValue(argument);
    }
  }
  return absl::OkStatus();
}

void PrintHelp(const std::string& usage, const po::options_description& options) {
  std::cout << "usage: voxconv " << usage << "\n\n" << options;
  const auto examples = ExamplesOf(usage.substr(0, usage.find(' ')));
  if (!examples.empty()) std::cout << "\nExamples:\n";
  for (absl::string_view example : examples) std::cout << "  voxconv " << example << "\n";
}

void PrintOptions(const po::options_description& options) {
  for (const auto& option : options.options()) {
    std::cout << "--" << option->long_name() << "\t" << option->description() << "\n";
  }
}

// Marks the status of a command that has printed its help: a plugin may return kCancelled, too.
constexpr char kAnswered[] = "voxconv/answered";

absl::Status Answered() {
  absl::Status status = absl::CancelledError("the command line is answered");
  status.SetPayload(kAnswered, absl::Cord());
  return status;
}

// Boost does not say which argument is one too many.
absl::Status SurplusArgument(const po::options_description& options,
                             po::positional_options_description positional,
                             const std::vector<std::string>& args, int style) {
  constexpr char kSurplus[] = "surplus argument";
  const unsigned allowed = positional.max_total_count();
  positional.add(kSurplus, -1);
  po::options_description all = options;
  all.add_options()(kSurplus, po::value<std::vector<std::string>>());
  const po::parsed_options parsed =
      po::command_line_parser(args).options(all).positional(positional).style(style).run();
  for (const auto& option : parsed.options) {
    if (option.string_key != kSurplus) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("argument '", option.value.front(), "' is one too many; ",
                     allowed == 0   ? "none is allowed"
                     : allowed == 1 ? "one is allowed"
                                    : absl::StrCat(allowed, " are allowed"),
                     " (see --help)"));
  }
  return absl::InvalidArgumentError("there are too many arguments (see --help)");
}

absl::Status ParseError(const po::error& error, const po::options_description& options) {
  const auto* syntax = dynamic_cast<const po::invalid_syntax*>(&error);
  if (syntax != nullptr && syntax->kind() == po::invalid_syntax::empty_adjacent_parameter) {
    return EmptyValue(syntax->get_option_name());  // --name=
  }
  std::string message = absl::StrReplaceAll(error.what(), {{"\n", " "}});
  if (const auto* unknown = dynamic_cast<const po::unknown_option*>(&error)) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    message += DidYouMean(unknown->get_option_name(), names);
  }
  return absl::InvalidArgumentError(absl::StrCat(message, " (see --help)"));
}

// For messages about a crash.
void NameLoadedLibraries() {
  const std::vector<LoadedPlugin> plugins = LoadedPlugins();
  if (plugins.empty()) return;
  ExitGuard::NameLibraries(absl::StrJoin(
      plugins, ", ",
      [](std::string* text, const LoadedPlugin& plugin) { absl::StrAppend(text, plugin.path); }));
}

}  // namespace

absl::StatusOr<po::variables_map> ParseArguments(
    const std::string& usage, const po::options_description& options,
    const po::positional_options_description& positional, const std::vector<std::string>& args,
    const po::options_description& hidden) {
  po::options_description shown = options;
  shown.add_options()("help,h", "print this help");
  if (args.size() == 1 && args[0] == kListOptions) {
    PrintOptions(shown);
    return Answered();
  }
  po::options_description all = shown;
  all.add(hidden);
  po::variables_map values;
  // No abbreviated option names: a new option must not change what an old script means.
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    const po::parsed_options parsed =
        po::command_line_parser(args).options(all).positional(positional).style(style).run();
    VOXCONV_RETURN_IF_ERROR(RefuseNegatives(parsed, all));
    VOXCONV_RETURN_IF_ERROR(RefuseEmpty(parsed));
    VOXCONV_RETURN_IF_ERROR(Store(parsed, all, values));
    if (values.count("help") != 0) {
      PrintHelp(usage, shown);
      return Answered();
    }
    po::notify(values);
  } catch (const po::too_many_positional_options_error&) {
    return SurplusArgument(all, positional, args, style);
  } catch (const po::error& error) {
    return ParseError(error, shown);
  }
  return values;
}

bool IsAnswered(const absl::Status& status) { return status.GetPayload(kAnswered).has_value(); }

po::options_description SessionOptions() {
  po::options_description options("Where it runs");
  options.add_options()  //
      ("backend", po::value<std::string>()->default_value("cpu"),
       "the backend: cpu or cuda; a program built without CUDA refuses cuda")   //
      ("device", po::value<int>()->default_value(0), "CUDA: index of the GPU")  //
      ("threads", po::value<int>()->default_value(0),
       "CPU threads, at most one a core; 0: all cores")  //
      ("memory-limit-mib", po::value<int64_t>()->default_value(0),
       "memory that the backend may hold at once, in MiB; on CUDA this includes freed memory that "
       "it "
       "keeps for reuse; 0: no limit")  //
      ("plugin", po::value<std::vector<std::string>>()->default_value({}, ""),
       "a shared library with plugins; may be repeated; VOXCONV_PLUGIN_PATH names more, separated "
       "by "
       "colons");
  return options;
}

absl::Status CheckDevice(const po::variables_map& values, BackendKind backend) {
  if (values["device"].defaulted() || backend != BackendKind::kCpu) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--device ", values["device"].as<int>(), ": has no meaning with --backend cpu"));
}

absl::Status CheckThreads(int threads) {
  VOXCONV_ASSIGN_OR_RETURN(const auto all, CpuBackend::Create({}));
  if (threads <= all->threads()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--threads ", threads, ": allowed are 0 .. ",
                                                 all->threads(), ", the cores of this machine"));
}

absl::Status RegisterPlugins(const po::variables_map& values, Registry& registry) {
  VOXCONV_RETURN_IF_ERROR(
      RegisterAllPlugins(values["plugin"].as<std::vector<std::string>>(), registry));
  NameLoadedLibraries();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const po::variables_map& values) {
  auto session = std::make_unique<Session>();
  VOXCONV_RETURN_IF_ERROR(RegisterPlugins(values, session->registry_));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  VOXCONV_RETURN_IF_ERROR(CheckDevice(values, kind));
  const int64_t mib = values["memory-limit-mib"].as<int64_t>();
  if (mib < 0 || mib > (int64_t{1} << 40)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory-limit-mib ", mib, ": allowed are 0 (none) .. 2^40"));
  }
  if (kind == BackendKind::kCpu) VOXCONV_RETURN_IF_ERROR(CheckThreads(values["threads"].as<int>()));
  VOXCONV_ASSIGN_OR_RETURN(session->backend_, MakeBackend({.kind = kind,
                                                           .device = values["device"].as<int>(),
                                                           .threads = values["threads"].as<int>(),
                                                           .memory_limit = mib << 20}));
  return session;
}

void WarnOfSlowProducts(BackendKind backend) {
  if (backend != BackendKind::kCpu) return;
  const std::string warning = measure::WhySlow(measure::MeasureProductRate());
  if (!warning.empty()) std::cerr << "warning: " << warning << std::endl;
}

}  // namespace voxconv::cli
