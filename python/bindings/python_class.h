// SPDX-License-Identifier: Apache-2.0
// What a Python class says of itself as a plugin.
#ifndef VOXCONV_PYTHON_BINDINGS_PYTHON_CLASS_H_
#define VOXCONV_PYTHON_BINDINGS_PYTHON_CLASS_H_

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "status.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/core/types.h"

namespace voxconv::python {

// name, summary, source, options and extra_variants of the class. TypeError if it is no class or
// lacks one of the methods; ValueError for an option that cannot be.
PluginDescription Describe(nb::handle type, const std::vector<const char*>& methods);

// Attributes of a class, or what stands for one that is missing. TypeError for another type.
std::string TextOf(nb::handle type, const char* name, const std::string& otherwise);
bool FlagOf(nb::handle type, const char* name, bool otherwise);
std::vector<std::string> WordsOf(nb::handle type, const char* name,
                                 const std::vector<std::string>& otherwise);

// The attribute `backends`; the CPU unless given.
std::vector<BackendKind> BackendsOf(nb::handle type);
// The attribute `dtypes`; f32 unless given. ValueError for tf32, which tensors do not tell.
std::vector<Precision> PrecisionsOf(nb::handle type);

// An instance of the class, with its options as keyword arguments. Exceptions are Python's.
nb::object Make(nb::handle type, const OptionSchema& schema, const Options& options);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_PYTHON_CLASS_H_
