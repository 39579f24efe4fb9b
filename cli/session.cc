// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/session.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/builtin/plugins.h"
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

// An empty text is what a variable that is not set leaves in a script; it would pass for an option
// that is not given.
absl::Status RefuseEmpty(const po::parsed_options& parsed) {
  for (const auto& option : parsed.options) {
    for (const std::string& value : option.value) {
      if (!value.empty()) continue;
      const std::string argument = option.position_key < 0
                                       ? absl::StrCat("--", option.string_key)
                                       : absl::AsciiStrToUpper(option.string_key);
      return absl::InvalidArgumentError(
          absl::StrCat(argument, " '': is empty; allowed is a value of one character or more"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<po::variables_map> ParseArguments(
    const std::string& usage, const po::options_description& options,
    const po::positional_options_description& positional, const std::vector<std::string>& args) {
  po::options_description all = options;
  all.add_options()("help,h", "print this help");
  po::variables_map values;
  try {
    // No abbreviated option names: a new option must not change what an old script means.
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    const po::parsed_options parsed =
        po::command_line_parser(args).options(all).positional(positional).style(style).run();
    VOXCONV_RETURN_IF_ERROR(RefuseNegatives(parsed, all));
    VOXCONV_RETURN_IF_ERROR(RefuseEmpty(parsed));
    po::store(parsed, values);
    if (values.count("help") != 0) {
      std::cout << "usage: voxconv " << usage << "\n\n" << all;
      return absl::CancelledError("help");
    }
    po::notify(values);
  } catch (const po::error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrReplaceAll(error.what(), {{"\n", " "}}), " (see --help)"));
  }
  return values;
}

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

absl::Status CheckThreads(int threads) {
  VOXCONV_ASSIGN_OR_RETURN(const auto all, CpuBackend::Create({}));
  if (threads <= all->threads()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--threads ", threads, ": allowed are 0 .. ",
                                                 all->threads(), ", the cores of this machine"));
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const po::variables_map& values) {
  auto session = std::make_unique<Session>();
  VOXCONV_RETURN_IF_ERROR(
      RegisterAllPlugins(values["plugin"].as<std::vector<std::string>>(), session->registry_));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
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

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_ && last_percent_ >= 0) std::cerr << "\r\033[K" << std::flush;
}

void Progress::Step(int64_t done) {
  if (!terminal_ || total_ <= 0) return;
  const int percent = static_cast<int>(100 * done / total_);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  std::cerr << "\r\033[K" << label_ << " " << percent << " % (" << done << " of " << total_ << ")"
            << std::flush;
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string& cell = row[i];
      const std::string padding(width[i] - cell.size(), ' ');
      const bool number =
          !cell.empty() &&
          (absl::ascii_isdigit(cell[0]) || ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
      absl::StrAppend(&line, i == 0 ? "" : "  ", number ? padding + cell : cell + padding);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace voxconv::cli
