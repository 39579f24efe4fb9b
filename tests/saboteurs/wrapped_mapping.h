// SPDX-License-Identifier: Apache-2.0
// A correct mapping with a fault in its kernel maps.
#ifndef VOXCONV_TESTS_SABOTEURS_WRAPPED_MAPPING_H_
#define VOXCONV_TESTS_SABOTEURS_WRAPPED_MAPPING_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tests/saboteurs/pairs.h"
#include "voxconv/core/registry.h"

namespace voxconv::testing {

// Where a map is asked for.
struct MapCall {
  int num_batches = 0;
  ExecutionContext context;
};

// Changes the right pairs.
using MappingFault = std::function<void(const MapCall&, Pairs&)>;

// Registers the mapping `name`: the one of `right` that `inner` names, with `fault` in what it
// answers. `right` must outlive the registry.
absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const MappingFault& fault,
                             Registry& registry);

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_WRAPPED_MAPPING_H_
