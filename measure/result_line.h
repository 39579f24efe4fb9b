// SPDX-License-Identifier: Apache-2.0
// Results as lines of JSON, with all that is needed to trust them later.
#ifndef VOXCONV_MEASURE_RESULT_LINE_H_
#define VOXCONV_MEASURE_RESULT_LINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/profile.h"
#include "voxconv/core/types.h"
#include "voxconv/measure/gpu_watch.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/machine_load.h"
#include "voxconv/measure/paired.h"

namespace voxconv::measure {

// The hash of this program's file (core/file_hash.h). Empty where it cannot be read. A commit does
// not tell programs apart that were built from a changed tree, or with other options.
const std::string& ProgramHash();

// {"commit", "dirty", "program", "plugins", "compiler", "build_type", "machine", "device",
// "backend", "driver", "gpu", "cpu_governor", "cpu_clock_mhz", "product", "load", "time_utc"}.
// "program" is ProgramHash. "plugins" is DescribePlugins. "driver" is the version of the GPU's
// driver. "gpu" is GpuWatch::ToJson of `gpu`, or null without a watch. "product" is ProductJson
// (measure/product_rate.h). "load" is LoadJson (measure/machine_load.h) of `load`. A value that
// cannot be read is null.
Json DescribeProvenance(const Backend& backend, const std::optional<MachineLoad>& load = {},
                        const GpuWatch* gpu = nullptr);
// What the code of a plugin was compiled for: "AVX2" for one of a loaded library. For built-in
// ones, what the program was compiled for, and the instruction set that its inner loops take at run
// time: "SSE2, inner loops AVX3".
std::string CompiledFor(absl::string_view spec);

// {"name", "path", "hash", "compiled_for"} of each library that this process has loaded.
Json DescribePlugins();
// The hashes of the loaded libraries, sorted: for keys.
Json PluginHashes();

// FNV-1a, 64 bits, over the coordinates b, x, y, z as 32-bit and the bits of the features as 32-bit
// little- endian words, as 16 hex digits: the same on every platform.
std::string HashInput(absl::Span<const Coordinate> coordinates, absl::Span<const float> features);

Json ToJson(const Counters& counters);
// {"median", "p10", "p90"}.
Json ToJson(const Summary& summary);
// {"ratio", "low", "high"}.
Json ToJson(const Ratio& ratio);
// {"pairs", "stopped", "verdict", "speedup", "stage_speedups", "a": {...}, "b": {...}}; a side has
// "wall_ms" and "stages_ms" (each with median, p10, p90), "wall_ms_samples" and "counters". Stages
// that neither side visited are left out.
Json ToJson(const Comparison& comparison, const PairedSamples& samples);

// Checks that AppendLine can write there. Makes the file if it is missing. Callers ask this before
// long work.
absl::Status CheckWritable(const std::string& path);

// Appends `line` to the file in one write. Several programs may thus share a file, and a line is
// there either whole or not at all. If a program was killed while it wrote, the last line has no
// end; this function ends it first. Makes the file if it is missing. Errors give the path and the
// system's reason.
absl::Status AppendLine(const std::string& path, const Json& line);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_RESULT_LINE_H_
