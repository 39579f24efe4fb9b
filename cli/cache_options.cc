// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/cache_options.h"

#include <cstdint>
#include <string>

#include "voxconv/core/status_macros.h"

namespace voxconv::cli {

namespace po = boost::program_options;

void AddCacheOptions(po::options_description& options) {
  options.add_options()  //
      ("cache", po::value<std::string>()->default_value("warm"),
       "CUDA: how a run finds the L2 cache: warm, as the run before left it, or cold, emptied "
       "before each run")  //
      ("l2-mib", po::value<int64_t>()->default_value(0),
       "CUDA: MiB of the L2 cache that the runs may use, approximately and as far as the device "
       "allows; 0: all");
}

absl::StatusOr<measure::CacheOptions> ParseCacheOptions(const po::variables_map& values,
                                                        BackendKind backend) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::CacheOptions options,
                           measure::ParseCacheOptions(values["cache"].as<std::string>(),
                                                      values["l2-mib"].as<int64_t>()));
  VOXCONV_RETURN_IF_ERROR(measure::CheckCacheOptions(options, backend));
  return options;
}

}  // namespace voxconv::cli
