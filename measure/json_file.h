// Parses JSON that people write. Errors give the place.
#ifndef VOXCONV_MEASURE_JSON_FILE_H_
#define VOXCONV_MEASURE_JSON_FILE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace voxconv::measure {

// Keys keep the order in which they were written.
using Json = nlohmann::ordered_json;

// kInvalidArgument for a text that is not JSON; the message gives line and column, from 1.
// kInvalidArgument also for an object that has a key twice, because one value would be lost. Read
// files with ReadFileBytes, which refuses devices and pipes.
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_JSON_FILE_H_
