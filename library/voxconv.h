// SPDX-License-Identifier: Apache-2.0
// All of voxconv for a program that links voxconv::voxconv. A program that wants shorter compile
// times includes the headers that it uses and links their libraries (voxconv::core, voxconv::io,
// ...).
#ifndef VOXCONV_VOXCONV_H_
#define VOXCONV_VOXCONV_H_

// IWYU pragma: begin_exports
// Coordinates, kernel maps, convolution, and the plugins by name.
#include "voxconv/builtin/backends.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/parse.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/version.h"

// Files, voxelisation and synthetic scenes.
#include "voxconv/io/kernel_map_file.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/safetensors.h"
#include "voxconv/io/scenes.h"
#include "voxconv/io/voxelize.h"

// Networks and their training.
#include "voxconv/networks/executor.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/hcnn.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/planner.h"
#include "voxconv/training/checkpoint.h"
#include "voxconv/training/run/training_run.h"
#include "voxconv/training/trainer.h"

// The fp64 reference and the checks against it.
#include "voxconv/networks/reference_network.h"
#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/training/reference_gradients.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/network_bound.h"

// Measurement, tuning and experiments.
#include "voxconv/experiments/runner/runner.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/paired.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/tune/search.h"

// Pages that show voxels in a browser.
#include "voxconv/view/cloud_view.h"
#include "voxconv/view/page.h"
// IWYU pragma: end_exports

#endif  // VOXCONV_VOXCONV_H_
