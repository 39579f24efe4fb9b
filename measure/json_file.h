// SPDX-License-Identifier: Apache-2.0
// The JSON reader, under the names that measuring uses.
#ifndef VOXCONV_MEASURE_JSON_FILE_H_
#define VOXCONV_MEASURE_JSON_FILE_H_

#include "voxconv/io/json_file.h"

namespace voxconv::measure {

using voxconv::Json;
using voxconv::ParseJson;

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_JSON_FILE_H_
