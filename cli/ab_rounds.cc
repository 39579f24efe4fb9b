// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/ab_rounds.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "voxconv/cli/self_command.h"
#include "voxconv/cli/terminal.h"
#include "voxconv/core/check.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/subprocess.h"
#include "voxconv/measure/interrupt.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/timer.h"

namespace voxconv::cli {
namespace {

using measure::Json;

// The line that a round prints.
absl::StatusOr<Json> RunRound(int round, const std::vector<std::string>& args) {
  std::vector<std::string> of_round = args;
  of_round.insert(of_round.begin(), absl::StrCat("--round=", round));
  VOXCONV_ASSIGN_OR_RETURN(const experiment::ProgramResult result,
                           experiment::RunProgram(SelfCommand("ab", of_round), /*capture=*/true));
  if (result.exit_status == 0) {
    // Its last one: a plugin may have printed before.
    const absl::string_view output = absl::StripTrailingAsciiWhitespace(result.output);
    const size_t end = output.rfind('\n');
    return measure::ParseJson(end == absl::string_view::npos ? output : output.substr(end + 1));
  }
  return absl::InternalError(absl::StrCat("round ", round, " failed; see above"));
}

// Of a line's result. Nothing where a run took no time that could be told.
std::optional<measure::Ratio> RatioOf(const Json& result) {
  const Json& speedup = result["speedup"];
  if (speedup.is_null()) return std::nullopt;
  return measure::Ratio{speedup["ratio"].get<double>(), speedup["low"].get<double>(),
                        speedup["high"].get<double>(), result["pairs"].get<int64_t>()};
}

void PrintWork(const Json& line) {
  std::cout << "A: " << line["configurations"]["a"]["name"].get<std::string>()
            << "\nB: " << line["configurations"]["b"]["name"].get<std::string>() << "\n"
            << line["title"].get<std::string>() << "\n"
            << line["provenance"]["device"].get<std::string>() << "\n";
}

// Nobody should learn it from waiting.
void SayHowLong(double seconds, int rounds) {
  constexpr double kLong = 60;
  if (seconds < kLong) return;
  std::cout << rounds << " rounds take about "
            << absl::FormatDuration(absl::Seconds(static_cast<int64_t>(seconds)))
            << "; Ctrl-C reports those done so far" << std::endl;
}

}  // namespace

absl::Status CheckMostRounds(int rounds) {
  constexpr int kMostRounds = 1000;
  if (rounds <= kMostRounds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--rounds ", rounds, ": allowed are 1 .. ", kMostRounds));
}

measure::Ratio CombineRounds(absl::Span<const measure::Ratio> ratios) {
  VOXCONV_CHECK(!ratios.empty());
  measure::Ratio combined = ratios[0];
  combined.pairs = 0;
  std::vector<double> values;
  for (const measure::Ratio& ratio : ratios) {
    values.push_back(ratio.value);
    combined.low = std::min(combined.low, ratio.low);
    combined.high = std::max(combined.high, ratio.high);
    combined.pairs += ratio.pairs;
  }
  combined.value = measure::Quantile(values, 0.5);
  return combined;
}

std::string VerdictLine(measure::Verdict verdict, const measure::Ratio& ratio) {
  switch (verdict) {
    case measure::Verdict::kFaster:
      return absl::StrFormat("A is %.2fx faster than B (%.2f..%.2f)", ratio.value, ratio.low,
                             ratio.high);
    case measure::Verdict::kSlower:
      return absl::StrFormat("A is %.2fx slower than B (%.2f..%.2f)", 1 / ratio.value,
                             1 / ratio.high, 1 / ratio.low);
    case measure::Verdict::kNoDifference:
      return absl::StrFormat("no difference between A and B: B / A is %.2f (%.2f..%.2f)",
                             ratio.value, ratio.low, ratio.high);
    case measure::Verdict::kTooFewPairs:
      break;
  }
  return absl::StrFormat("too few pairs for a verdict: there are %d, and a verdict needs %d",
                         ratio.pairs, measure::kMinPairsForVerdict);
}

std::string CapturedLine(const Json& captured) {
  const measure::Ratio ratio = RatioOf(captured).value_or(measure::Ratio{});
  std::string line =
      absl::StrFormat("%s, %.3f ms against %.3f ms", VerdictLine(measure::Judge(ratio), ratio),
                      captured["a"]["wall_ms"]["median"].get<double>(),
                      captured["b"]["wall_ms"]["median"].get<double>());
  for (const Json& side : captured["launch_bound"]) {
    absl::StrAppend(&line, side == "a" ? "; A" : "; B", " is launch-bound as it runs");
  }
  return line;
}

absl::Status RunAbRounds(int rounds, const std::vector<std::string>& args,
                         const std::function<absl::Status(const Json&)>& write) {
  const measure::InterruptGuard interrupt;
  std::vector<measure::Ratio> ratios;
  const measure::Timer timer;
  for (int round = 1; round <= rounds && !interrupt.interrupted(); ++round) {
    VOXCONV_ASSIGN_OR_RETURN(const Json line, RunRound(round, args));
    if (round == 1) PrintWork(line);
    if (round == 1) SayHowLong(timer.Seconds() * (rounds - 1), rounds);
    VOXCONV_RETURN_IF_ERROR(write(line));
    const std::optional<measure::Ratio> ratio = RatioOf(line["result"]);
    if (!ratio.has_value()) return absl::InternalError("a run took no time that could be measured");
    ratios.push_back(*ratio);
    std::cout << "round " << round << " of " << rounds << ": "
              << VerdictLine(measure::Judge(*ratio), *ratio);
    if (const Json& busy = line["result"]["busy"]; busy.is_string()) {
      std::cout << "; busy machine: " << busy.get<std::string>();
    }
    std::cout << std::endl;
  }
  if (ratios.empty()) return absl::AbortedError("interrupted before the first round ended");
  const measure::Ratio combined = CombineRounds(ratios);
  std::cout << "\n"
            << (interrupt.interrupted() ? "interrupted; " : "") << ratios.size()
            << " rounds, each in a process of its own, " << combined.pairs << " pairs\n"
            << Styled(Style::kBold, VerdictLine(measure::Judge(combined), combined)) << "\n";
  return absl::OkStatus();
}

}  // namespace voxconv::cli
