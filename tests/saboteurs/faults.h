// SPDX-License-Identifier: Apache-2.0
// The faults that `verify` must find.
#ifndef VOXCONV_TESTS_SABOTEURS_FAULTS_H_
#define VOXCONV_TESTS_SABOTEURS_FAULTS_H_

#include <string>
#include <vector>

#include "tests/saboteurs/wrapped_dataflow.h"
#include "tests/saboteurs/wrapped_mapping.h"

namespace voxconv::testing {

template <typename Fault>
struct NamedFault {
  std::string name;  // lower_snake_case
  Fault fault;
  // The precisions in which the fault changes anything. For mappings, only f32.
  std::vector<Precision> precisions;
  bool cpu_only = false;
  // Such a fault counts only if the right plugin claims determinism.
  bool breaks_determinism = false;
};

// Each call makes new faults. A fault that counts its calls counts only its own.
std::vector<NamedFault<DataflowFault>> DataflowFaults();
std::vector<NamedFault<MappingFault>> MappingFaults();
// Of gradients, and of poolings in a dataflow that pools itself.
std::vector<NamedFault<GradFault>> GradFaults();
std::vector<NamedFault<GradFault>> PoolFaults();

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_FAULTS_H_
