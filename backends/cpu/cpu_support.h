// What plugins that run on the CPU refuse, in one wording for all.
#ifndef VOXCONV_BACKENDS_CPU_CPU_SUPPORT_H_
#define VOXCONV_BACKENDS_CPU_CPU_SUPPORT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/dataflow.h"
#include "core/plugin.h"
#include "core/types.h"

namespace voxconv {

// For Supports() of the plugin `name`: the CPU, whatever the problem.
Support CpuOnly(absl::string_view name, BackendKind backend);
// For Supports() of the dataflow `name`: f32 on the CPU.
Support CpuF32Only(absl::string_view name, const ConvShape& shape, BackendKind backend);

// For Plan() of the dataflow `name`: kInvalidArgument without input or output channels.
absl::Status CheckChannels(absl::string_view name, const ConvShape& shape);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_SUPPORT_H_
