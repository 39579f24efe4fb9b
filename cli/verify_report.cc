// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/verify_report.h"

#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "voxconv/cli/terminal.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::cli {
namespace {

// "conv/hash/implicit_gemm" of "conv/hash/implicit_gemm:tile=16/16x16/submanifold_k3/single".
std::string SubjectOf(const std::string& id) {
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '/');
  std::string subject(parts[0]);
  const bool names_one = subject == "map" || subject == "coords" || subject == "form";
  for (size_t i = 1; i < (names_one ? 2 : 3) && i + 1 < parts.size(); ++i) {
    absl::StrAppend(&subject, "/", parts[i].substr(0, parts[i].find(':')));
  }
  return subject;
}

}  // namespace

std::string WithoutNumbers(const std::string& message) {
  std::string kind;
  for (const absl::string_view word : absl::StrSplit(message, absl::ByAnyChar(" ,;:()"))) {
    if (word.empty()) continue;
    const size_t digit = word.find_first_of("0123456789");
    // "-nan" and "inf" stand where numbers stand.
    const bool is_number = digit != absl::string_view::npos || word == "nan" || word == "-nan" ||
                           word == "inf" || word == "-inf";
    absl::StrAppend(&kind, is_number ? "#" : word, " ");
  }
  return kind;
}

VerifyReport::VerifyReport(std::string rerun, int64_t most_kinds)
    : rerun_(std::move(rerun)), most_kinds_(most_kinds == 0 ? SIZE_MAX : most_kinds) {}

void VerifyReport::Add(const std::string& id, const verify::Outcome& outcome) {
  switch (outcome.verdict) {
    case verify::Verdict::kPassed:
      ++passed_;
      return;
    case verify::Verdict::kSkipped:
      ++skipped_;
      ++skip_reasons_[outcome.detail];
      return;
    case verify::Verdict::kFailed:
      break;
  }
  ++failed_;
  failures_.push_back(
      {{"id", id}, {"detail", outcome.detail}, {"rerun", absl::StrCat(rerun_, "'", id, "'")}});
  const std::string key = absl::StrCat(SubjectOf(id), " ", WithoutNumbers(outcome.detail));
  const auto [known, is_new] = kind_of_.try_emplace(key, kinds_.size());
  if (is_new) kinds_.push_back({id});
  ++kinds_[known->second].count;
  if (!is_new || kinds_.size() > most_kinds_) return;
  std::cout << Styled(Style::kRed, "FAILED") << " " << id << ": " << outcome.detail << "\n  "
            << rerun_ << "'" << id << "'\n"
            << std::flush;
}

absl::Status VerifyReport::TakePlugins(absl::string_view text) {
  VOXCONV_ASSIGN_OR_RETURN(measure::Json plugins, measure::ParseJson(text));
  if (!plugins_.is_null() && plugins_ != plugins) {
    return absl::FailedPreconditionError(
        absl::StrCat("a plugin's library was replaced while its cases ran: ", plugins_.dump(),
                     " became ", plugins.dump()));
  }
  plugins_ = std::move(plugins);
  return absl::OkStatus();
}

absl::Status VerifyReport::Finish(const std::string& device, int64_t num_cases, double seconds) {
  int64_t hidden = 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (i >= most_kinds_) {
      hidden += kinds_[i].count;
    } else if (kinds_[i].count > 1) {
      std::cout << "failed " << kinds_[i].count - 1 << " more like " << kinds_[i].first_id << "\n";
    }
  }
  if (hidden > 0) {
    std::cout << "failed " << hidden << " more, of " << kinds_.size() - most_kinds_
              << " other kinds (--show-failures 0 shows all kinds)\n";
  }
  for (const auto& [reason, count] : skip_reasons_) {
    std::cout << "skipped " << count << ": " << reason << "\n";
  }
  const int64_t done = passed_ + failed_ + skipped_;
  result_ = {{"kind", "verify"},
             {"device", device},
             {"cases", num_cases},
             {"passed", passed_},
             {"failed", failed_},
             {"skipped", skipped_},
             {"seconds", seconds},
             {"failures", failures_},
             {"skip_reasons", skip_reasons_},
             {"program", measure::ProgramHash()},
             {"plugins", plugins_.is_null() ? measure::DescribePlugins() : plugins_}};
  std::cout << absl::StrFormat("verify on %s: %d cases in %.1f s\n", device, done, seconds);
  std::cout << absl::StrFormat("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped_)
            << std::flush;
  if (done < num_cases) {
    return absl::InternalError(absl::StrCat(num_cases - done, " of ", num_cases,
                                            " cases were not run, and ", failed_, " failed"));
  }
  if (failed_ == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(failed_, " of ", num_cases, " cases failed"));
}

}  // namespace voxconv::cli
