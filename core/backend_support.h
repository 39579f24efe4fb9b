// What plugins refuse, in one wording for all.
#ifndef VOXCONV_CORE_BACKEND_SUPPORT_H_
#define VOXCONV_CORE_BACKEND_SUPPORT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/dataflow.h"
#include "core/plugin.h"
#include "core/types.h"
#include "core/version.h"

namespace voxconv {

// Whether this build has a CUDA backend. Code for it is reached under `if constexpr (kHaveCuda)`:
// then a build without it need not define what it calls.
inline constexpr bool kHaveCuda = VOXCONV_HAVE_CUDA != 0;

// For Supports() of the plugin `name`: the CPU alone, whatever the problem.
Support CpuOnly(absl::string_view name, BackendKind backend);
// The CPU, and CUDA where it is built.
Support CpuAndCuda(absl::string_view name, BackendKind backend);
// For Supports() of the dataflow `name`: f32 on the CPU; every dtype on CUDA where it is built.
Support CpuAndCuda(absl::string_view name, const ConvShape& shape, BackendKind backend);
// f32 on the CPU.
Support CpuF32Only(absl::string_view name, const ConvShape& shape, BackendKind backend);

// For Plan() of the dataflow `name`: kInvalidArgument without input or output channels.
absl::Status CheckChannels(absl::string_view name, const ConvShape& shape);

}  // namespace voxconv

#endif  // VOXCONV_CORE_BACKEND_SUPPORT_H_
