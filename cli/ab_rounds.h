// SPDX-License-Identifier: Apache-2.0
// `voxconv ab --rounds N`: the same comparison in several processes.
#ifndef VOXCONV_CLI_AB_ROUNDS_H_
#define VOXCONV_CLI_AB_ROUNDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/statistics.h"

namespace voxconv::cli {

// An error for more rounds than anybody waits for. Also of `voxconv experiment`.
absl::Status CheckMostRounds(int rounds);

// Runs `ab` with `args` `rounds` times, each in a process of its own, prints what each found and
// what follows from all, and gives their result lines to `write`. A program's memory,
// and the core that it runs on, set its times for as long as it lives; the pairs of one process
// cannot show that.
absl::Status RunAbRounds(int rounds, const std::vector<std::string>& args,
                         const std::function<absl::Status(const measure::Json&)>& write);

// Several rounds as one, by the rule of the report: the median of the ratios, from the lowest end
// of the intervals to the highest. `ratios` must not be empty (checked).
measure::Ratio CombineRounds(absl::Span<const measure::Ratio> ratios);

// What ab::CompareCaptured found, with a speedup: "A is 1.10x faster than B (1.08..1.12), 0.021 ms
// against 0.023 ms; A launch-bound".
std::string CapturedLine(const measure::Json& captured);

// "A is 2.38x slower than B (2.31..2.48)".
std::string VerdictLine(measure::Verdict verdict, const measure::Ratio& ratio);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_AB_ROUNDS_H_
