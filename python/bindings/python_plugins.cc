// SPDX-License-Identifier: Apache-2.0
// Mappings and dataflows that are Python classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "arguments.h"
#include "plugins.h"
#include "python_call.h"
#include "python_class.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::python {
namespace {

// ---- mappings

class PythonIndex final : public MapIndex {
 public:
  explicit PythonIndex(PyObjectPtr object) : object_(std::move(object)) {}
  const nb::object& object() const { return *object_; }
  int64_t bytes() const override { return 0; }  // Python does not say

 private:
  PyObjectPtr object_;
};

// The voxels of a set, int32 [N, 4]: a copy on the CPU, else a view that ends with the loan.
nb::object RowsOf(const CoordinateSet& set, const Loan& loan, const ExecutionContext& context) {
  const auto* data = reinterpret_cast<const int32_t*>(set.rows().data());
  if (!context.backend->asynchronous()) return Copied(data, {set.size(), 4});
  return loan.Lend(data, {set.size(), 4}, context.backend->device());
}

class PythonMapping final : public Mapping {
 public:
  PythonMapping(std::string name, PyObjectPtr instance, bool checked, Options options)
      : name_(std::move(name)),
        instance_(std::move(instance)),
        checked_(checked),
        options_(std::move(options)) {}

  const Options& options() const override { return options_; }
  // A class without the method supports all geometries.
  Support DoSupports(const ConvGeometry& geometry) const override {
    const absl::StatusOr<std::string> reason =
        InPython(Who("supports"), [&]() -> absl::StatusOr<std::string> {
          if (!nb::hasattr(*instance_, "supports")) return "";
          const nb::object answer = instance_->attr("supports")(geometry.ToString());
          if (answer.is_none()) return "";
          std::string reason;
          if (nb::isinstance<nb::str>(answer) && nb::try_cast(answer, reason)) return reason;
          ThrowTypeError(absl::StrCat("returned ", TypeText(answer),
                                      "; None, or the reason as a str, is needed"));
        });
    if (!reason.ok()) return Support::Failed(std::string(reason.status().message()));
    return reason->empty() ? Support::Yes() : Support::No(*reason);
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    const std::string who = Who("build_index");
    std::unique_ptr<MapIndex> index;
    VOXCONV_RETURN_IF_ERROR(InPythonOn(context, who, [&]() -> absl::Status {
      const Loan loan;
      index = std::make_unique<PythonIndex>(
          Share(instance_->attr("build_index")(RowsOf(inputs, loan, context))));
      return loan.Check(who);
    }));
    return index;
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const std::string who = Who("query");
    const absl::Span<const Int3> offsets = problem.geometry.input_offsets();
    Array<Int3> on_device;
    if (context.backend->asynchronous()) {
      VOXCONV_ASSIGN_OR_RETURN(on_device, CopyToBackend(offsets, context));
    }
    KernelMap map;
    VOXCONV_RETURN_IF_ERROR(InPythonOn(context, who, [&]() -> absl::Status {
      const Loan loan;
      {
        const std::vector<int64_t> shape = {static_cast<int64_t>(offsets.size()), 3};
        const nb::object answer = instance_->attr("query")(
            static_cast<const PythonIndex&>(index).object(), RowsOf(problem.outputs, loan, context),
            context.backend->asynchronous()
                ? loan.Lend(&on_device.data()->x, shape, context.backend->device())
                : Copied(&offsets[0].x, shape));
        map = MapOf(answer, problem, context);
      }
      return loan.Check(who);
    }));
    map.set_identity_offset(problem.geometry.center());
    map.set_symmetric(problem.geometry.symmetric());
    // Rows out of range would be read by every dataflow.
    if (checked_) VOXCONV_RETURN_IF_ERROR(map.Validate(context));
    return map;
  }

 private:
  std::string Who(const char* method) const {
    return absl::StrCat("mapping ", name_, ": ", method);
  }

  // A triple of arrays is pairs; one array is a table.
  static KernelMap MapOf(nb::handle answer, const MapProblem& problem,
                         const ExecutionContext& context) {
    const int64_t inputs = problem.inputs.size(), outputs = problem.outputs.size();
    const int num_offsets = problem.geometry.num_offsets();
    if (!nb::isinstance<nb::tuple>(answer)) {
      return {inputs, outputs, num_offsets,
              NeighbourTable{TakeRows("table", answer, outputs * num_offsets, context), {}}};
    }
    if (nb::len(answer) != 3) {
      ThrowValueError("a table, or a tuple (in_rows, out_rows, offset_ptr), must be returned");
    }
    std::vector<int64_t> counts =
        TakeOnHost("offset_ptr", answer[nb::int_(2)], num_offsets + 1, context);
    const int64_t pairs = counts[num_offsets];
    return {inputs, outputs, std::move(counts),
            PairList{TakeRows("in_rows", answer[nb::int_(0)], pairs, context),
                     TakeRows("out_rows", answer[nb::int_(1)], pairs, context)}};
  }

  std::string name_;
  PyObjectPtr instance_;
  bool checked_;
  Options options_;
};

// ---- dataflows

// What a class says of its dataflow.
struct Promises {
  MapForm form = MapForm::kPairs;
  std::vector<Precision> precisions;
  bool deterministic = true, rounds_partial_sums = false, isolates_weights = true;
};

class PythonPlan final : public DataflowPlan {
 public:
  PythonPlan(const PreparedMap& map, const ConvShape& shape) {
    kernel_ = "Python";
    if (!map.map().counts_known()) return;  // counting would make the host wait for the device
    work_.true_pairs = work_.padded_pairs = map.map().num_pairs();
    work_.launches = 1;
    // By formula, as if every pair read its row of the input and its weights.
    const int64_t size = SizeOf(shape.types.input);
    work_.bytes_read =
        map.bytes() + work_.true_pairs * (shape.c_in + shape.c_in * shape.c_out) * size;
    work_.bytes_written = map.map().num_outputs() * shape.c_out * size;
  }
};

class PythonDataflow final : public Dataflow {
 public:
  PythonDataflow(std::string name, PyObjectPtr instance, Promises promises, Options options)
      : name_(std::move(name)),
        instance_(std::move(instance)),
        promises_(std::move(promises)),
        options_(std::move(options)) {}

  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass /*pass*/, const ConvShape& shape) const override {
    return {.support = SupportOf(shape),
            .deterministic = promises_.deterministic,
            .rounds_partial_sums = promises_.rounds_partial_sums,
            .isolates_weights = promises_.isolates_weights};
  }
  MapNeed DoNeededMap(Pass /*pass*/, const ConvShape& /*shape*/) const override {
    return {.form = promises_.form};
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass /*pass*/, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    if (!context.backend->asynchronous()) VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    return std::make_unique<PythonPlan>(map, shape);
  }

  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& /*workspace*/,
                         const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kFused);
    const std::string who = absl::StrCat("dataflow ", name_, ": forward");
    return InPythonOn(context, who, [&]() -> absl::Status {
      const Loan loan;
      const ConvShape& shape = plan.shape();
      std::string returned;
      {
        const nb::object answer = instance_->attr("forward")(
            MapArrays(map.map(), loan, context),
            loan.Lend(args.input, {args.input.rows, shape.c_in}),
            loan.Lend(args.weights, {shape.num_offsets, shape.c_in, shape.c_out}),
            loan.LendWritable(args.output, {args.output.rows, shape.c_out}));
        if (!answer.is_none()) returned = TypeText(answer);
      }
      if (!returned.empty()) {
        return absl::InternalError(
            absl::StrCat(who, ": returned ", returned, "; it must fill y and return nothing"));
      }
      return loan.Check(who);
    });
  }

 private:
  Support SupportOf(const ConvShape& shape) const {
    Support support = UniformTypes(name_, shape);
    const std::vector<Precision>& allowed = promises_.precisions;
    if (!support.ok ||
        std::find(allowed.begin(), allowed.end(), shape.types.precision) != allowed.end()) {
      return support;
    }
    const auto write = [](std::string* out, Precision precision) {
      absl::StrAppend(out, ToString(precision));
    };
    return Support::No(absl::StrCat(name_, " takes ", absl::StrJoin(allowed, " and ", write),
                                    " only, not ", ToString(shape.types.precision)));
  }

  // The table, or (in_rows, out_rows, offset_ptr).
  nb::object MapArrays(const KernelMap& map, const Loan& loan,
                       const ExecutionContext& context) const {
    const Device device = context.backend->device();
    if (promises_.form == MapForm::kNeighbourTable) {
      return loan.Lend(map.table().table.data(), {map.num_outputs(), map.num_offsets()}, device);
    }
    return nb::make_tuple(
        loan.Lend(map.pairs().in.data(), {map.num_pairs()}, device),
        loan.Lend(map.pairs().out.data(), {map.num_pairs()}, device),
        Copied(map.offset_ptr().data(), {static_cast<int64_t>(map.offset_ptr().size())}));
  }

  std::string name_;
  PyObjectPtr instance_;
  Promises promises_;
  Options options_;
};

// ---- registration

// Classes that are plugins, by family and name: "MODULE.QUALNAME".
std::map<std::pair<std::string, std::string>, std::string>& RegisteredClasses() {
  static auto* classes = new std::map<std::pair<std::string, std::string>, std::string>;
  return *classes;
}

std::string PathOf(nb::handle type) {
  return absl::StrCat(TextOf(type, "__module__", ""), ".", TextOf(type, "__qualname__", ""));
}

// The family without the plugin `name`.
template <typename Plugin>
absl::StatusOr<PluginFamily<Plugin>> Without(const PluginFamily<Plugin>& family,
                                             const std::string& name) {
  PluginFamily<Plugin> rest(family.family());
  for (const auto& [other, entry] : family.entries()) {
    if (other == name) continue;
    VOXCONV_RETURN_IF_ERROR(rest.Describe(entry.description));
    for (const auto& [backend, factory] : entry.factories) {
      VOXCONV_RETURN_IF_ERROR(rest.Implement(other, backend, factory));
    }
  }
  return rest;
}

// Registers the class for its backends. `make` makes the plugin of an instance and its options. A
// class replaces an earlier one of the same module and qualified name, as a cell of a notebook that
// runs again makes it; instances of the earlier one stay what they are.
template <typename Plugin, typename MakePlugin>
void Register(PluginFamily<Plugin>& (Registry::*family)(), PluginDescription description,
              nb::handle type, const MakePlugin& make) {
  const std::vector<BackendKind> backends = BackendsOf(type);
  const std::string name = description.name;
  const OptionSchema schema = description.options;
  auto create = [name, schema, shared = Share(nb::borrow(type)),
                 make](Options options) -> absl::StatusOr<std::unique_ptr<const Plugin>> {
    VOXCONV_ASSIGN_OR_RETURN(PyObjectPtr instance,
                             InPython(name, [&]() -> absl::StatusOr<PyObjectPtr> {
                               return Share(Make(*shared, schema, options));
                             }));
    return make(name, std::move(instance), std::move(options));
  };
  const std::string path = PathOf(type);
  const std::pair<std::string, std::string> place((Registry().*family)().family(), name);
  const auto earlier = RegisteredClasses().find(place);
  const bool replaces = earlier != RegisteredClasses().end() && earlier->second == path;
  const auto add = [&](Registry& registry) -> absl::Status {
    PluginFamily<Plugin>& plugins = (registry.*family)();
    if (replaces) {
      VOXCONV_ASSIGN_OR_RETURN(plugins, Without(plugins, name));
    }
    VOXCONV_RETURN_IF_ERROR(plugins.Describe(std::move(description)));
    for (const BackendKind backend : backends) {
      VOXCONV_RETURN_IF_ERROR(plugins.Implement(name, backend, create));
    }
    return absl::OkStatus();
  };
  AddPlugins(add, replaces);
  RegisteredClasses()[place] = path;
}

nb::object RegisterMapping(nb::object type) {
  PluginDescription description = Describe(type, {"build_index", "query"});
  const bool checked = FlagOf(type, "checked", true);
  Register<Mapping>(&Registry::mappings, std::move(description), type,
                    [checked](std::string name, PyObjectPtr instance, Options options) {
                      return std::make_unique<const PythonMapping>(
                          std::move(name), std::move(instance), checked, std::move(options));
                    });
  return type;
}

nb::object RegisterDataflow(nb::object type) {
  PluginDescription description = Describe(type, {"forward"});
  const std::string form = TextOf(type, "form", "pairs");
  if (form != ToString(MapForm::kPairs) && form != ToString(MapForm::kNeighbourTable)) {
    ThrowValueError(absl::StrCat("form '", form, "': allowed are ", ToString(MapForm::kPairs),
                                 " and ", ToString(MapForm::kNeighbourTable)));
  }
  const Promises promises = {
      .form = form == ToString(MapForm::kPairs) ? MapForm::kPairs : MapForm::kNeighbourTable,
      .precisions = PrecisionsOf(type),
      .deterministic = FlagOf(type, "deterministic", true),
      .rounds_partial_sums = FlagOf(type, "rounds_partial_sums", false),
      .isolates_weights = FlagOf(type, "isolates_weights", true)};
  Register<Dataflow>(&Registry::dataflows, std::move(description), type,
                     [promises](std::string name, PyObjectPtr instance, Options options) {
                       return std::make_unique<const PythonDataflow>(
                           std::move(name), std::move(instance), promises, std::move(options));
                     });
  return type;
}

constexpr char kMappingHelp[] =
    R"(Registers a Python class as a mapping, and returns it: a class decorator.

It has:
    name: a lower_snake_case word, unique among mappings.
    build_index(coords): any object; coords is int32 [N_in, 4]: batch, x, y, z.
    query(index, outputs, offsets): the map. outputs is int32 [N_out, 4]; offsets is int32 [K, 3].
        Input row p and output row q are a pair of offset k if coords[p] = outputs[q] + offsets[k]
        in the same batch. Returns either a table [N_out, K] of p or -1, or a tuple (in_rows,
        out_rows, offset_ptr): the pairs of offset k are at offset_ptr[k] .. offset_ptr[k + 1] and
        ascend by output row. int32, on the CPU also int64; -1 only in tables.
    supports(geometry): optional; None, or the reason why it does not take "submanifold k3".
    backends: optional; ("cpu",) unless given, ("cuda",) or both.
    options: optional; a dict {name: {"default": ..., "help": ...}}. The default's type is the
        option's. An int or a float has "min" and "max" as well, a str has "choices". The class is
        made with one keyword argument an option, and without arguments if it has none.
    extra_variants: optional; texts such as "block=64,scale=2" that verify runs besides the product
        of all options that are a str or a bool.
    checked: optional; False leaves out the check of every map, which waits for the device. verify
        checks maps all the same.
    summary, source: optional strings for list_plugins.

On the CPU the arrays are NumPy's, and copies. On CUDA they are PyTorch's or CuPy's, as the process
has loaded, else objects with __dlpack__. They are views that end with the call: a class that keeps
one gets an error. The plugin's work belongs on the stream plugin_stream(), which is PyTorch's and
CuPy's current stream meanwhile. What is returned is copied: from CUDA on the device, from NumPy
to it; an offset_ptr on CUDA is copied to the host, which waits for the device. Every map is
checked. The class serves any number of threads, one call at a time.

An exception becomes a RuntimeError with its text, raised from it; NotImplementedError and MemoryError
become the same. KeyboardInterrupt and SystemExit end the call, verify, ab, tune and experiment too. A
class replaces an earlier one of the same module and qualified name, as when a notebook's cell runs
again; what was made of the earlier one stays.

Raises:
    ValueError: another plugin has the name, it is no such word, or an option cannot be.
    TypeError: it is no class, a method is missing, or an attribute is of another type.)";

constexpr char kDataflowHelp[] =
    R"(Registers a Python class as a dataflow, and returns it: a class decorator.

It has:
    name: a lower_snake_case word, unique among dataflows.
    form: "pairs" (the default) or "neighbour_table".
    forward(map, x, w, y): fills y, [N_out, C_out], with the sum of x[p] w[k] over the pairs
        (p, q, k) of each row q, and returns nothing. x is [N_in, C_in], w is [K, C_in, C_out]. map
        is (in_rows, out_rows, offset_ptr) or the table, as register_mapping describes them;
        offset_ptr is NumPy's. y's values before are undefined.
    dtypes: optional; ("f32",) unless given, or some of "f32", "f16" and "bf16", which the CPU has
        not. x, w and y have the same one; sums are kept in float32.
    deterministic: optional; False if equal calls may give different bits.
    rounds_partial_sums: optional; True if a pair's products are rounded to y's dtype before they
        are added.
    isolates_weights: optional; False if w[k] is multiplied with 0 where a row has no pair of k, so
        that a NaN in it reaches that row.
    backends, options, extra_variants, summary, source: optional; as for register_mapping.

The arrays are views that end with the call: a class that keeps one gets an error. On the CPU they
are NumPy's. On CUDA they are PyTorch's or CuPy's, as the process has loaded, else objects with
__dlpack__; nothing is copied. The work belongs on the stream plugin_stream(), which is PyTorch's
and CuPy's current stream meanwhile. Gradients are computed by forward on the transposed map, and
by the backend. A frame with such a dataflow cannot be recorded. Exceptions, and classes that are
registered again, are as for register_mapping.

Raises:
    ValueError: another plugin has the name, it is no such word, another form, or an option that
        cannot be.
    TypeError: it is no class, forward is missing, or an attribute is of another type.)";

}  // namespace

void DefinePythonPlugins(nb::module_& module) {
  module.def("register_mapping", &RegisterMapping, nb::arg("plugin").none(),
             nb::sig("def register_mapping(plugin: type) -> type"), kMappingHelp);
  module.def("register_dataflow", &RegisterDataflow, nb::arg("plugin").none(),
             nb::sig("def register_dataflow(plugin: type) -> type"), kDataflowHelp);
  module.def("plugin_stream", &OnStream::Current,
             R"(The CUDA stream on which a plugin in Python must queue its work, as a number.

0 outside of a call of a plugin on CUDA. PyTorch's and CuPy's current stream is this one already;
other libraries are given it: numba.cuda.external_stream(voxconv.plugin_stream()).)");
}

}  // namespace voxconv::python
