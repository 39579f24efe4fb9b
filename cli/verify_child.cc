// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/verify_child.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "voxconv/cli/command_child.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/library_probe.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/line_program.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/timer.h"

namespace voxconv::cli {
namespace {

using experiment::LineProgram;
using Clock = std::chrono::steady_clock;

// What the child writes, a line each:
//   plugins JSON            once: what the child has loaded (measure::DescribePlugins)
//   cases NUMBER DEVICE     once
//   begin I ID              before case I
//   end VERDICT DETAIL      after it
//   error CODE MESSAGE      the command itself failed
// and the end of the command (cli/command_child.h). Other lines are what ExitGuard says of a crash.
constexpr absl::string_view kPlugins = "plugins ", kCases = "cases ", kBegin = "begin ",
                            kEnd = "end ", kError = "error ";

// To read the input, to load the plugins and to make the cases.
constexpr double kStartSeconds = 600;
// A plugin that ends every case's process would take days.
constexpr int kMostEnds = 50;
constexpr int kMostLate = 5;

// "12 rest" as 12 and "rest".
bool TakeNumber(absl::string_view text, int64_t& number, std::string& rest) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  rest = std::string(parts.second);
  return absl::SimpleAtoi(parts.first, &number);
}

// The cases of one `verify`, in one child after the other.
class Parent {
 public:
  Parent(const std::vector<std::string>& args, double case_seconds, VerifyReport& report)
      : args_(args), case_seconds_(case_seconds), report_(report) {}

  absl::Status Run() {
    const measure::Timer timer;
    while (!done_) {
      VOXCONV_RETURN_IF_ERROR(RunChild());
      if (ends_ < kMostEnds && late_ < kMostLate) continue;
      break;
    }
    progress_.reset();
    const absl::Status status = report_.Finish(device_, num_cases_, timer.Seconds());
    if (done_ || status.ok()) return status;
    return StatusAt(absl::StrCat("it stopped after ", ends_, " cases that ended their process"),
                    status);
  }

 private:
  absl::Status RunChild() {
    std::vector<std::string> args = args_;
    args.insert(args.begin(), absl::StrCat(kFromCaseArgument, next_));
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<LineProgram> child, StartChild("verify", args));
    id_.clear();
    last_words_.clear();
    started_ = false;
    const int64_t first = next_;
    SetDeadline(kStartSeconds);
    for (std::string line;;) {
      const LineProgram::Event event = child->Next(deadline_, line);
      if (event == LineProgram::Event::kLine) {
        VOXCONV_RETURN_IF_ERROR(Take(line));
        continue;
      }
      const bool late = event == LineProgram::Event::kLate;
      const int status = child->Stop();
      if (done_ && status == 0) return absl::OkStatus();
      return TakeEnd(late ? "does not end in time" : EndOfProcess(status), late, first);
    }
  }

  absl::Status Take(const std::string& line) {
    absl::string_view rest = line;
    std::string text;
    int64_t number = 0;
    if (absl::ConsumePrefix(&rest, kPlugins)) {
      return report_.TakePlugins(rest);
    } else if (absl::ConsumePrefix(&rest, kCases) && TakeNumber(rest, number, text)) {
      if (progress_ == nullptr) progress_ = std::make_unique<Progress>("verify", number);
      num_cases_ = number;
      device_ = text;
      started_ = true;
    } else if (absl::ConsumePrefix(&rest, kBegin) && TakeNumber(rest, number, text)) {
      next_ = number + 1;
      id_ = text;
      SetDeadline(case_seconds_);
    } else if (absl::ConsumePrefix(&rest, kEnd) && TakeNumber(rest, number, text)) {
      report_.Add(id_, {static_cast<verify::Verdict>(number), text});
      id_.clear();
      progress_->Step(next_);
      SetDeadline(kStartSeconds);
    } else if (absl::ConsumePrefix(&rest, kError) && TakeNumber(rest, number, text)) {
      return absl::Status(static_cast<absl::StatusCode>(number), text);
    } else if (int code = 0; IsEndOfCommand(line, code)) {
      done_ = true;
    } else {
      last_words_ = line;
    }
    return absl::OkStatus();
  }

  // The child has ended before it was done, or after that with an error.
  absl::Status TakeEnd(const std::string& how, bool late, int64_t first) {
    const std::string detail =
        absl::StrCat("the process ", how, last_words_.empty() ? "" : ": ", last_words_);
    if (!started_) return absl::InternalError(absl::StrCat("before the first case, ", detail));
    ++ends_;
    if (late) ++late_;
    if (!id_.empty()) {
      report_.Add(
          id_, verify::Outcome::Failed(late ? absl::StrCat("it does not end within ", case_seconds_,
                                                           " s (--case-seconds)")
                                            : detail));
      if (next_ == num_cases_) done_ = true;
      return absl::OkStatus();
    }
    const bool all_ran = next_ == num_cases_;
    if (!all_ran && next_ > first) return absl::OkStatus();  // between two cases
    return absl::InternalError(
        absl::StrCat(all_ran ? "after the last case, " : "between cases, ", detail));
  }

  void SetDeadline(double seconds) {
    deadline_ = Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  const std::vector<std::string>& args_;
  const double case_seconds_;
  VerifyReport& report_;
  std::unique_ptr<Progress> progress_;
  Clock::time_point deadline_;
  int64_t num_cases_ = 0, next_ = 0;
  std::string device_, id_, last_words_;
  bool started_ = false, done_ = false;
  int ends_ = 0, late_ = 0;
};

}  // namespace

absl::Status VerifyInChildren(const std::vector<std::string>& args, double case_seconds,
                              VerifyReport& report) {
  return Parent(args, case_seconds, report).Run();
}

void RunCasesInChild(const std::vector<verify::Case>& cases, int64_t from,
                     const std::string& device) {
  TellParent(absl::StrCat(kPlugins, measure::DescribePlugins().dump(
                                        -1, ' ', false, measure::Json::error_handler_t::replace)));
  TellParent(absl::StrCat(kCases, cases.size(), " ", device));
  for (size_t i = from; i < cases.size(); ++i) {
    TellParent(absl::StrCat(kBegin, i, " ", cases[i].id));
    const verify::Outcome outcome = verify::RunCase(cases[i]);
    TellParent(absl::StrCat(kEnd, static_cast<int>(outcome.verdict), " ", outcome.detail));
  }
}

void TellError(const absl::Status& error) {
  TellParent(absl::StrCat(kError, static_cast<int>(error.code()), " ", error.message()));
}

}  // namespace voxconv::cli
