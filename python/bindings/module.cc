// SPDX-License-Identifier: Apache-2.0
// The module voxconv._voxconv.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "arguments.h"
#include "convolution.h"
#include "engine.h"
#include "input.h"
#include "interop.h"
#include "joined.h"
#include "kernel_map.h"
#include "network.h"
#include "plugins.h"
#include "pooling.h"
#include "shared_norm.h"
#include "sparse_tensor.h"
#include "traced_network.h"
#include "training_norm.h"
#include "tune.h"
#include "verify.h"
#include "voxconv/core/version.h"

NB_MODULE(_voxconv, module) {
  // PyTorch frees the graph of a tensor that a script still has at its end after the interpreter
  // has looked for leaks, and a graph keeps its kernel maps.
  nb::set_leak_warnings(false);
  using namespace voxconv::python;  // NOLINT(google-build-using-namespace): the module's own parts
  module.doc() = "The compiled part of voxconv. Import voxconv.";
  module.attr("__version__") = VOXCONV_VERSION;
  module.attr("has_cuda") = VOXCONV_HAVE_CUDA != 0;
  DefineSparseTensor(module);
  DefineKernelMap(module);
  DefineConvolution(module);
  DefineJoined(module);
  DefinePooling(module);
  DefineSharedNorm(module);
  DefineTrainingNorm(module);
  DefineInput(module);
  DefineNetwork(module);
  DefineTracedNetwork(module);
  DefineInterop(module);
  DefinePlugins(module);
  DefinePythonPlugins(module);
  DefineVerify(module);
  DefineAb(module);
  DefineTune(module);
  DefineExperiment(module);
  module.def(
      "set_num_threads",
      [](nb::handle threads) {
        SetNumThreads(static_cast<int>(ToInteger("threads", threads, 0, 1024)));
      },
      nb::arg("threads").none(), nb::sig("def set_num_threads(threads: int) -> None"),
      "Sets the number of threads of the CPU; 0: all cores. Raises ValueError outside 0 .. 1024.");
  module.def("num_threads", &NumThreads, "The number of threads of the CPU.");
  module.def("_replacements", &Replacements,
             "How often a Python class has replaced an earlier plugin of its name.");
  module.def(
      "_synchronisations",
      [](int device) {
        return CudaEngine(device, CurrentStream(device))->backend().synchronisations();
      },
      nb::arg("device"), nb::sig("def _synchronisations(device: int) -> int"),
      "How often calls on the GPU's current stream have made the host wait.");
  // Plugins in Python, and arrays that plugins keep, must be gone before the interpreter is.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&Shutdown));
}
