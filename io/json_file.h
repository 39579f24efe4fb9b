// SPDX-License-Identifier: Apache-2.0
// Parses JSON that people and other programs write. Errors give the place.
#ifndef VOXCONV_IO_JSON_FILE_H_
#define VOXCONV_IO_JSON_FILE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace voxconv {

// Keys keep the order in which they were written.
using Json = nlohmann::ordered_json;

// The one way in which JSON is read. kInvalidArgument for a text that is not JSON; the message
// gives line and column, from 1. kInvalidArgument also for an object that has a key twice, because
// one value would be lost, and for more than 100 nested arrays and objects, on which functions that
// walk a value would run out of stack. Read files with ReadFileBytes, which refuses devices and
// pipes.
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace voxconv

#endif  // VOXCONV_IO_JSON_FILE_H_
