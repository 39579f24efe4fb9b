// SPDX-License-Identifier: Apache-2.0
// Whole networks on a given cloud: every mapping with every dataflow.
#ifndef VOXCONV_VERIFY_NETWORK_CASES_H_
#define VOXCONV_VERIFY_NETWORK_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/planner.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {

struct NetworkRequest {
  std::string network;  // networks/models.h
  ModelOptions model;
  Precision precision = Precision::kF32;
  std::string input;  // as ids name the cloud
  VoxelizedCloud cloud;
  // Of the cloud's voxels, those nearest to the middle one: what the fp64 reference computes.
  int64_t crop_voxels = 1000;
  // What the CPU backend runs the whole cloud with, for the expected features.
  LayerChoice on_cpu;
  std::string output_coords;  // spec of the cases' output coordinates
};

// One case for each mapping and dataflow in each of their ways of working, and one for the layers
// that the backend computes itself:
//   network/<mapping>/<dataflow>/<network>/<dtype>/<input>
//   network/operators/<network>/<dtype>/<input>
// On a crop, each layer gets the reference's inputs of that layer. Every element of its output must
// be within its bound (verify/bounds.h). Then the whole network runs with folded batch norm. On the
// crop it must give the reference's rows, and features within NetworkLayers::bound(). On the whole
// cloud its features must be within twice that of those of the CPU backend in f32. The first case
// that runs computes the expectations. `environment` must outlive the cases. Errors of MakeModel.
absl::StatusOr<std::vector<Case>> MakeNetworkCases(Environment& environment,
                                                   const NetworkRequest& request,
                                                   const Selection& selection);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_CASES_H_
