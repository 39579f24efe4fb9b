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
  // Those in which the fault changes anything; of mappings f32 alone.
  std::vector<Precision> precisions;
  bool cpu_only = false;
  bool breaks_determinism = false;  // no fault where the right plugin does not claim determinism
};

// Made anew by each call: faults that count their calls count them each for itself.
std::vector<NamedFault<DataflowFault>> DataflowFaults();
std::vector<NamedFault<MappingFault>> MappingFaults();

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_FAULTS_H_
