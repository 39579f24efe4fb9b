#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/session.h"
#include "cli/verify/matrix.h"

namespace voxconv::cli {
namespace {

struct Tally {
  int64_t passed = 0, failed = 0, skipped = 0;
  std::map<std::string, int64_t> skip_reasons;
};

void Report(const verify::Case& test, const verify::Outcome& outcome,
            const std::string& repro_prefix, Tally& tally) {
  switch (outcome.verdict) {
    case verify::Verdict::kPassed:
      ++tally.passed;
      break;
    case verify::Verdict::kSkipped:
      ++tally.skipped;
      ++tally.skip_reasons[outcome.detail];
      break;
    case verify::Verdict::kFailed:
      ++tally.failed;
      std::cout << "FAILED " << test.id << ": " << outcome.detail << "\n  " << repro_prefix << "'"
                << test.id << "'\n";
      break;
  }
}

std::string ReproPrefix(const po::variables_map& values) {
  std::string prefix =
      absl::StrCat("voxconv verify --backend ", values["backend"].as<std::string>());
  for (const std::string& path : values["plugin"].as<std::vector<std::string>>()) {
    absl::StrAppend(&prefix, " --plugin ", path);
  }
  if (!values["threads"].defaulted()) {
    absl::StrAppend(&prefix, " --threads ", values["threads"].as<int>());
  }
  if (!values["memory-limit-mib"].defaulted()) {
    absl::StrAppend(&prefix, " --memory-limit-mib ", values["memory-limit-mib"].as<int64_t>());
  }
  return absl::StrCat(prefix, " --filter ");
}

// A spec as `verify` writes it; "" stays "". One that is not among the variants has no cases.
template <typename Plugin>
absl::StatusOr<std::string> Selected(const std::string& text, const PluginFamily<Plugin>& family) {
  if (text.empty()) return text;
  VOXCONV_ASSIGN_OR_RETURN(const std::string spec, family.Canonical(text));
  const std::vector<std::string> variants = family.Variants();
  if (text.find(':') == std::string::npos) return text;
  if (std::find(variants.begin(), variants.end(), spec) != variants.end()) return spec;
  return absl::InvalidArgumentError(absl::StrCat(
      family.family(), " '", spec, "' is none of the variants that verify runs; there are ",
      absl::StrJoin(variants, " ")));
}

po::options_description VerifyOptions() {
  po::options_description options("Which cases");
  options.add_options()  //
      ("mapping", po::value<std::string>()->default_value(""),
       "only this mapping: a name, or the spec of a variant")                                    //
      ("dataflow", po::value<std::string>()->default_value(""), "only this dataflow, likewise")  //
      ("filter", po::value<std::string>()->default_value(""),
       "a case's id or part of one; * matches anything")                //
      ("quick", po::bool_switch(), "about one case in twenty")          //
      ("list", po::bool_switch(), "print the cases' ids and run none")  //
      ("support", po::bool_switch(), "print what is refused, with the reasons, and run none");
  return options;
}

// Asks the plugins alone: no device is needed.
absl::Status PrintSupport(const po::variables_map& values, BackendKind kind) {
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(FillRegistry(values["plugin"].as<std::vector<std::string>>(), registry));
  for (const std::string& line : verify::SupportTable(registry, kind)) std::cout << line << "\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status RunVerify(const std::vector<std::string>& args) {
  po::options_description options = VerifyOptions();
  options.add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("verify [OPTIONS]", options, {}, args));
  VOXCONV_ASSIGN_OR_RETURN(const BackendKind kind,
                           ParseBackendKind(values["backend"].as<std::string>()));
  if (values["support"].as<bool>()) return PrintSupport(values, kind);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  const int device = values["device"].as<int>();
  VOXCONV_ASSIGN_OR_RETURN(const std::string mapping, Selected(values["mapping"].as<std::string>(),
                                                               session->registry().mappings()));
  VOXCONV_ASSIGN_OR_RETURN(
      const std::string dataflow,
      Selected(values["dataflow"].as<std::string>(), session->registry().dataflows()));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> serial,
                           MakeBackend({.kind = kind, .device = device, .threads = 1}));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Backend> parallel,
                           MakeBackend({.kind = kind, .device = device, .threads = 2}));
  verify::Environment environment{&session->registry(), &session->backend(), serial.get(),
                                  parallel.get()};
  const std::vector<verify::Case> cases =
      verify::MakeCases(environment, {.mapping = mapping,
                                      .dataflow = dataflow,
                                      .filter = values["filter"].as<std::string>(),
                                      .quick = values["quick"].as<bool>()});
  if (cases.empty()) {
    return absl::NotFoundError("no case matches --mapping, --dataflow and --filter; see --list");
  }
  if (values["list"].as<bool>()) {
    for (const verify::Case& test : cases) std::cout << test.id << "\n";
    return absl::OkStatus();
  }

  Tally tally;
  const std::string repro = ReproPrefix(values);
  const auto begin = std::chrono::steady_clock::now();
  {
    Progress progress("verify", cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      Report(cases[i], cases[i].run(), repro, tally);
      progress.Step(i + 1);
    }
  }
  for (const auto& [reason, count] : tally.skip_reasons) {
    std::cout << "skipped " << count << ": " << reason << "\n";
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << absl::StrFormat("verify on %s: %d cases in %.1f s\n",
                               session->backend().DeviceName(), cases.size(), seconds.count());
  std::cout << absl::StrFormat("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed,
                               tally.skipped)
            << std::flush;
  if (tally.failed == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(tally.failed, " of ", cases.size(), " cases failed"));
}

}  // namespace voxconv::cli
