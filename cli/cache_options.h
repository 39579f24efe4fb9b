// SPDX-License-Identifier: Apache-2.0
// --cache and --l2-mib of the commands that time.
#ifndef VOXCONV_CLI_CACHE_OPTIONS_H_
#define VOXCONV_CLI_CACHE_OPTIONS_H_

#include "absl/status/statusor.h"
#include "boost/program_options.hpp"
#include "voxconv/core/types.h"
#include "voxconv/measure/cache_use.h"

namespace voxconv::cli {

void AddCacheOptions(boost::program_options::options_description& options);

// Refuses what has no meaning on the backend.
absl::StatusOr<measure::CacheOptions> ParseCacheOptions(
    const boost::program_options::variables_map& values, BackendKind backend);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_CACHE_OPTIONS_H_
