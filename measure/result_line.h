// One JSON line a result, with everything needed to trust it later.
#ifndef VOXCONV_MEASURE_RESULT_LINE_H_
#define VOXCONV_MEASURE_RESULT_LINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/profile.h"
#include "core/types.h"
#include "measure/json_file.h"
#include "measure/paired.h"

namespace voxconv::measure {

// Commit, compiler, machine, device, driver, clocks seen and the time: {"commit", "dirty",
// "compiler", "build_type", "machine", "device", "backend", "driver", "cpu_governor",
// "cpu_clock_mhz", "time_utc"}. What cannot be read is null.
Json DescribeProvenance(const Backend& backend);

// FNV-1a, 64 bits, over the coordinates b, x, y, z as 32-bit and the bits of the features as 32-bit
// little- endian words, as 16 hex digits: the same on every platform.
std::string HashInput(absl::Span<const Coordinate> coordinates, absl::Span<const float> features);

Json ToJson(const Counters& counters);
// {"ratio", "low", "high"}.
Json ToJson(const Ratio& ratio);
// {"pairs", "stopped", "verdict", "speedup", "stage_speedups", "a": {...}, "b": {...}}; a side has
// "wall_ms" and "stages_ms" (each with median, p10, p90), "wall_ms_samples" and "counters". Stages
// that neither side visited are left out.
Json ToJson(const Comparison& comparison, const PairedSamples& samples);

// Whether AppendLine can write there; makes the file if need be. To be asked before long work.
absl::Status CheckWritable(const std::string& path);

// Appends `line` to the file with one write, so that several programs may share it and a line is
// either there or not; a last line without its end, of a program that was cut short, is ended
// first. Makes the file if need be. Errors name the path and the system's reason.
absl::Status AppendLine(const std::string& path, const Json& line);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_RESULT_LINE_H_
