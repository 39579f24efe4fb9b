// SPDX-License-Identifier: Apache-2.0
#include "verify.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/selection.h"

namespace voxconv::python {
namespace {

const char* ToText(verify::Verdict verdict) {
  switch (verdict) {
    case verify::Verdict::kPassed:
      return "passed";
    case verify::Verdict::kFailed:
      return "failed";
    case verify::Verdict::kSkipped:
      return "skipped";
  }
  return "?";
}

// Backends of its own: cases compare numbers of threads.
struct Backends {
  std::unique_ptr<Backend> whole, serial, parallel;
};

Backends MakeBackends(BackendKind kind) {
  return {ValueOf(MakeBackend({.kind = kind})), ValueOf(MakeBackend({.kind = kind, .threads = 1})),
          ValueOf(MakeBackend({.kind = kind, .threads = 2}))};
}

nb::list Verify(const std::string& mapping, const std::string& dataflow, const std::string& filter,
                bool quick, const std::string& backend) {
  const BackendKind kind = ValueOf(ParseBackendKind(backend));
  const std::shared_ptr<const Registry> plugins = Plugins();
  const Backends backends = MakeBackends(kind);
  verify::Environment environment{plugins.get(), backends.whole.get(), backends.serial.get(),
                                  backends.parallel.get()};
  const verify::Selection selection{
      .mapping = ValueOf(verify::SelectPlugin(mapping, plugins->mappings(), kind)),
      .dataflow = ValueOf(verify::SelectPlugin(dataflow, plugins->dataflows(), kind)),
      .filter = filter,
      .quick = quick};
  const std::vector<verify::Case> cases = [&] {
    const nb::gil_scoped_release released;
    return verify::MakeCases(environment, selection);
  }();
  ThrowIfEnding();
  if (cases.empty()) {
    std::vector<std::string> given;
    for (const auto& [name, text] :
         {std::pair("mapping", &mapping), std::pair("dataflow", &dataflow),
          std::pair("filter", &filter)}) {
      if (!text->empty()) given.push_back(absl::StrCat(name, " '", *text, "'"));
    }
    ThrowValueError(absl::StrCat("no case matches ", absl::StrJoin(given, " and ")));
  }
  nb::list records;
  for (const verify::Case& test : cases) {
    const verify::Outcome outcome = [&] {
      const nb::gil_scoped_release released;
      return verify::RunCase(test);
    }();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C
    ThrowIfEnding();
    nb::dict record;
    record["case"] = test.id;
    record["verdict"] = ToText(outcome.verdict);
    record["detail"] = outcome.detail;
    records.append(record);
  }
  return records;
}

}  // namespace

void DefineVerify(nb::module_& module) {
  module.def("verify", &Verify, nb::kw_only(), nb::arg("mapping") = "", nb::arg("dataflow") = "",
             nb::arg("filter") = "", nb::arg("quick") = false, nb::arg("backend") = "cpu",
             nb::sig("def verify(*, mapping: str = '', dataflow: str = '', filter: str = '', "
                     "quick: bool = False, backend: str = 'cpu') -> list[dict[str, str]]"),
             R"(Checks plugins against the reference, as `voxconv verify` does.

Args:
    mapping, dataflow: only the cases of this plugin: a name for all variants, a spec such as
        "hash:variant=cuckoo" for one, "hash:" for the default one.
    filter: only the cases whose id contains this text; * matches anything.
    quick: about one case in twenty.
    backend: "cpu" or "cuda".

Returns:
    One dict a case, for pandas.DataFrame: case, verdict ("passed", "failed" or "skipped") and
    detail, which says why.

Raises:
    ValueError: a plugin is unknown, or no case matches.
    NotImplementedError: the build has no CUDA.

Ctrl-C ends it between two cases, or in a plugin in Python. Waits for the device.

>>> import voxconv
>>> records = voxconv.verify(mapping="hash:", filter="map/hash/submanifold")
>>> {r["verdict"] for r in records}
{'passed'}
)");
}

}  // namespace voxconv::python
