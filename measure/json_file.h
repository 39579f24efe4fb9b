// JSON as people write it: what does not parse is said with its place.
#ifndef VOXCONV_MEASURE_JSON_FILE_H_
#define VOXCONV_MEASURE_JSON_FILE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace voxconv::measure {

// Keys keep the order in which they were written.
using Json = nlohmann::ordered_json;

// kInvalidArgument: no JSON, with line and column, both from 1, or an object with a key twice, of
// which one would be lost. Files are read with ReadFileBytes, which refuses devices and pipes: they
// need not end.
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_JSON_FILE_H_
