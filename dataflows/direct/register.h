#ifndef VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_
#define VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds the dataflow `direct`: a row of an offset table an output row, one dot product a channel.
absl::Status RegisterDirect(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_REGISTER_H_
