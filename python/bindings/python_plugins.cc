// SPDX-License-Identifier: Apache-2.0
// Mappings and dataflows that are Python classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "array.h"
#include "engine.h"
#include "plugins.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::python {
namespace {

// An object of Python that C++ code without the GIL copies and destroys.
using PyObjectPtr = std::shared_ptr<const nb::object>;

PyObjectPtr Share(nb::object object) {
  return {new nb::object(std::move(object)), [](const nb::object* pointer) {
            const nb::gil_scoped_acquire acquired;
            delete pointer;
          }};
}

// What `call` returns; an exception of Python becomes kInternal, as one line. Takes the GIL.
template <typename Call>
std::invoke_result_t<Call> InPython(const std::string& who, const Call& call) {
  const nb::gil_scoped_acquire acquired;
  try {
    return call();
  } catch (nb::python_error& error) {
    const auto type = nb::cast<std::string>(error.type().attr("__name__"));
    const auto text = nb::cast<std::string>(nb::str(error.value()));
    return absl::InternalError(absl::StrCat(who, ": ", type, ": ", text));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(who, ": ", error.what()));
  }
}

// A string attribute of the class, or the default.
std::string TextOf(nb::handle type, const char* name, const std::string& otherwise) {
  const nb::object value = nb::getattr(type, name, nb::none());
  std::string text;
  if (value.is_none()) return otherwise;
  if (nb::isinstance<nb::str>(value) && nb::try_cast(value, text)) return text;
  ThrowTypeError(absl::StrCat(name, ": must be a string"));
}

// Lends memory to Python for one call. Afterwards nothing may refer to it any more.
class Loan {
 public:
  Loan() : flag_(std::make_shared<const int>(0)) {}
  // The capsule that owns arrays on the memory.
  nb::object owner() const { return Keep(flag_); }
  // Refuses an array that is still there.
  absl::Status Check(const std::string& who) const {
    if (flag_.use_count() == 1) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(who, ": keeps an array that it was given for one call; it must copy it"));
  }

 private:
  std::shared_ptr<const int> flag_;
};

// A NumPy array of its own.
template <typename T>
nb::object Copied(const T* data, const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  auto values = std::make_shared<std::vector<T>>(data, data + size);
  T* begin = values->data();
  return OutArray(begin, shape, nb::dtype<T>(), Device{}, Keep(std::move(values)), {});
}

nb::object CopiedRows(const CoordinateSet& set) {
  return Copied(reinterpret_cast<const int32_t*>(set.rows().data()), {set.size(), 4});
}

// ---- mappings

class PythonIndex final : public MapIndex {
 public:
  explicit PythonIndex(PyObjectPtr object) : object_(std::move(object)) {}
  const nb::object& object() const { return *object_; }
  int64_t bytes() const override { return 0; }  // Python does not say

 private:
  PyObjectPtr object_;
};

// An array of int32 or int64 that a plugin returned, as T in the backend's memory.
template <typename T>
Array<T> TakeRows(const char* name, nb::handle object, int64_t size,
                  const ExecutionContext& context) {
  const InArray rows(name, object);
  if (rows.size() != size) {
    ThrowValueError(absl::StrCat(name, ": ", rows.size(), " elements; ", size, " are needed"));
  }
  Array<T> result = ValueOf(AllocateArray<T>(size, context));
  if (rows.Is<int32_t>()) {
    std::copy_n(static_cast<const int32_t*>(rows.data()), size, result.data());
  } else if (rows.Is<int64_t>()) {
    std::copy_n(static_cast<const int64_t*>(rows.data()), size, result.data());
  } else {
    ThrowValueError(absl::StrCat(name, ": dtype ", rows.DTypeText(), "; int32 or int64 is needed"));
  }
  return result;
}

class PythonMapping final : public Mapping {
 public:
  PythonMapping(std::string name, PyObjectPtr instance, Options options)
      : name_(std::move(name)), instance_(std::move(instance)), options_(std::move(options)) {}

  const Options& options() const override { return options_; }
  // A class without the method supports all geometries.
  Support DoSupports(const ConvGeometry& geometry) const override {
    const absl::StatusOr<std::string> reason =
        InPython(Who("supports"), [&]() -> absl::StatusOr<std::string> {
          if (!nb::hasattr(*instance_, "supports")) return "";
          const nb::object answer = instance_->attr("supports")(geometry.ToString());
          return answer.is_none() ? "" : nb::cast<std::string>(nb::str(answer));
        });
    if (!reason.ok()) return Support::Failed(std::string(reason.status().message()));
    return reason->empty() ? Support::Yes() : Support::No(*reason);
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& /*context*/) const override {
    return InPython(Who("build_index"), [&]() -> absl::StatusOr<std::unique_ptr<MapIndex>> {
      return std::make_unique<PythonIndex>(
          Share(instance_->attr("build_index")(CopiedRows(inputs))));
    });
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(
        KernelMap map, InPython(Who("query"), [&]() -> absl::StatusOr<KernelMap> {
          const absl::Span<const Int3> offsets = problem.geometry.input_offsets();
          const nb::object answer = instance_->attr("query")(
              static_cast<const PythonIndex&>(index).object(), CopiedRows(problem.outputs),
              Copied(&offsets[0].x, {static_cast<int64_t>(offsets.size()), 3}));
          return MapOf(answer, problem, context);
        }));
    map.set_identity_offset(problem.geometry.center());
    map.set_symmetric(problem.geometry.symmetric());
    // Rows out of range would be read by every dataflow.
    VOXCONV_RETURN_IF_ERROR(map.Validate(context));
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
      return {
          inputs, outputs, num_offsets,
          NeighbourTable{TakeRows<int32_t>("table", answer, outputs * num_offsets, context), {}}};
    }
    if (nb::len(answer) != 3) {
      ThrowValueError("a table, or a tuple (in_rows, out_rows, offset_ptr), must be returned");
    }
    const Array<int64_t> counts =
        TakeRows<int64_t>("offset_ptr", answer[nb::int_(2)], num_offsets + 1, context);
    const int64_t* begin = counts.data();
    const int64_t pairs = begin[num_offsets];
    return {inputs, outputs, std::vector<int64_t>(begin, begin + num_offsets + 1),
            PairList{TakeRows<int32_t>("in_rows", answer[nb::int_(0)], pairs, context),
                     TakeRows<int32_t>("out_rows", answer[nb::int_(1)], pairs, context)}};
  }

  std::string name_;
  PyObjectPtr instance_;
  Options options_;
};

// ---- dataflows

class PythonPlan final : public DataflowPlan {
 public:
  PythonPlan(const PreparedMap& map, const ConvShape& shape) {
    work_.true_pairs = work_.padded_pairs = map.map().num_pairs();
    work_.launches = 1;
    // By formula, as if every pair read its row of the input and its weights.
    constexpr int64_t kFloatBytes = sizeof(float);
    work_.bytes_read =
        map.bytes() + work_.true_pairs * (shape.c_in + shape.c_in * shape.c_out) * kFloatBytes;
    work_.bytes_written = map.map().num_outputs() * shape.c_out * kFloatBytes;
  }
};

class PythonDataflow final : public Dataflow {
 public:
  PythonDataflow(std::string name, PyObjectPtr instance, MapForm form, Options options)
      : name_(std::move(name)),
        instance_(std::move(instance)),
        form_(form),
        options_(std::move(options)) {}

  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass /*pass*/, const ConvShape& shape) const override {
    return {.support = F32Only(name_, shape)};
  }
  MapNeed DoNeededMap(Pass /*pass*/, const ConvShape& /*shape*/) const override {
    return {.form = form_};
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass /*pass*/, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    return std::make_unique<PythonPlan>(map, shape);
  }

  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace& /*workspace*/,
                         const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kFused);
    const std::string who = absl::StrCat("dataflow ", name_, ": forward");
    return InPython(who, [&]() -> absl::Status {
      const Loan loan;
      {
        const ConvShape& shape = plan.shape();
        const auto lend = [&](const void* data, const std::vector<int64_t>& extents) {
          return ReadOnlyArray(data, extents, nb::dtype<float>(), Device{}, loan.owner());
        };
        instance_->attr("forward")(
            MapArrays(map.map(), loan), lend(args.input.data, {args.input.rows, shape.c_in}),
            lend(args.weights.data, {shape.num_offsets, shape.c_in, shape.c_out}),
            OutArray(args.output.data, {args.output.rows, shape.c_out}, nb::dtype<float>(),
                     Device{}, loan.owner(), {}));
      }
      return loan.Check(who);
    });
  }

 private:
  // The table, or (in_rows, out_rows, offset_ptr).
  nb::object MapArrays(const KernelMap& map, const Loan& loan) const {
    const auto rows = [&](const SharedArray<int32_t>& array, const std::vector<int64_t>& shape) {
      return ReadOnlyArray(array.data(), shape, nb::dtype<int32_t>(), Device{}, loan.owner());
    };
    if (form_ == MapForm::kNeighbourTable) {
      return rows(map.table().table, {map.num_outputs(), map.num_offsets()});
    }
    return nb::make_tuple(
        rows(map.pairs().in, {map.num_pairs()}), rows(map.pairs().out, {map.num_pairs()}),
        Copied(map.offset_ptr().data(), {static_cast<int64_t>(map.offset_ptr().size())}));
  }

  std::string name_;
  PyObjectPtr instance_;
  MapForm form_;
  Options options_;
};

// ---- registration

PluginDescription Describe(nb::handle type, const std::vector<const char*>& methods) {
  if (!nb::isinstance<nb::type_object>(type)) ThrowTypeError("plugin: a class is needed");
  for (const char* method : methods) {
    if (!nb::hasattr(type, method)) {
      ThrowTypeError(absl::StrCat("plugin: the class has no method ", method));
    }
  }
  const std::string doc = TextOf(type, "__doc__", "");
  const std::vector<std::string> lines = absl::StrSplit(doc, '\n', absl::SkipWhitespace());
  return {.name = TextOf(type, "name", ""),
          .summary = TextOf(type, "summary", lines.empty() ? "" : lines[0]),
          .source = TextOf(type, "source", "Python")};
}

// The factory that makes an instance of the class, in `make(instance, options)`.
template <typename Plugin, typename Make>
auto FactoryOf(const std::string& name, nb::handle type, const Make& make) {
  return [name, shared = Share(nb::borrow(type)),
          make](Options options) -> absl::StatusOr<std::unique_ptr<const Plugin>> {
    VOXCONV_ASSIGN_OR_RETURN(
        PyObjectPtr instance,
        InPython(name, [&]() -> absl::StatusOr<PyObjectPtr> { return Share((*shared)()); }));
    return make(std::move(instance), std::move(options));
  };
}

nb::object RegisterMapping(nb::object type) {
  PluginDescription description = Describe(type, {"build_index", "query"});
  const std::string name = description.name;
  AddPlugins([&](Registry& registry) {
    return registry.mappings().Register(
        std::move(description), BackendKind::kCpu,
        FactoryOf<Mapping>(name, type, [name](PyObjectPtr instance, Options options) {
          return std::make_unique<const PythonMapping>(name, std::move(instance),
                                                       std::move(options));
        }));
  });
  return type;
}

nb::object RegisterDataflow(nb::object type) {
  PluginDescription description = Describe(type, {"forward"});
  const std::string name = description.name, form = TextOf(type, "form", "pairs");
  if (form != ToString(MapForm::kPairs) && form != ToString(MapForm::kNeighbourTable)) {
    ThrowValueError(absl::StrCat("form '", form, "': allowed are ", ToString(MapForm::kPairs),
                                 " and ", ToString(MapForm::kNeighbourTable)));
  }
  const MapForm map_form =
      form == ToString(MapForm::kPairs) ? MapForm::kPairs : MapForm::kNeighbourTable;
  AddPlugins([&](Registry& registry) {
    return registry.dataflows().Register(
        std::move(description), BackendKind::kCpu,
        FactoryOf<Dataflow>(name, type, [name, map_form](PyObjectPtr instance, Options options) {
          return std::make_unique<const PythonDataflow>(name, std::move(instance), map_form,
                                                        std::move(options));
        }));
  });
  return type;
}

}  // namespace

void DefinePythonPlugins(nb::module_& module) {
  module.def("register_mapping", &RegisterMapping, nb::arg("plugin").none(),
             nb::sig("def register_mapping(plugin: type) -> type"),
             R"(Registers a Python class as a mapping of the CPU, and returns it: a class decorator.

The class is made without arguments. It has:
    name: a lower_snake_case word, unique among mappings.
    build_index(coords): any object; coords is int32 [N_in, 4]: batch, x, y, z.
    query(index, outputs, offsets): the map. outputs is int32 [N_out, 4]; offsets is int32 [K, 3].
        Input row p and output row q are a pair of offset k if coords[p] = outputs[q] + offsets[k]
        in the same batch. Returns either a table [N_out, K] of p or -1, or a tuple (in_rows,
        out_rows, offset_ptr): the pairs of offset k are at offset_ptr[k] .. offset_ptr[k + 1] and
        ascend by output row. int32 or int64; -1 only in tables.
    supports(geometry): optional; None, or the reason why it does not take "submanifold k3".
    summary, source: optional strings for list_plugins.

The arrays are copies. Every map is checked. An exception becomes a RuntimeError with its text. The
class serves any number of threads, one call at a time.

Raises:
    ValueError: the name is taken or no such word.
    TypeError: it is no class, or a method is missing.)");
  module.def(
      "register_dataflow", &RegisterDataflow, nb::arg("plugin").none(),
      nb::sig("def register_dataflow(plugin: type) -> type"),
      R"(Registers a Python class as a dataflow of the CPU, and returns it: a class decorator.

The class is made without arguments. It has:
    name: a lower_snake_case word, unique among dataflows.
    form: "pairs" (the default) or "neighbour_table".
    forward(map, x, w, y): fills y, float32 [N_out, C_out], with the sum of x[p] w[k] over the pairs
        (p, q, k) of each row q. x is [N_in, C_in], w is [K, C_in, C_out]. map is (in_rows,
        out_rows, offset_ptr) or the table, as register_mapping describes them. y's values before
        are undefined.
    summary, source: optional strings for list_plugins.

The arrays are views that end with the call: a class that keeps one gets an error. Gradients are
computed by forward on the transposed map, and by the backend. An exception becomes a RuntimeError
with its text.

Raises:
    ValueError: the name is taken or no such word, or another form.
    TypeError: it is no class, or forward is missing.)");
}

}  // namespace voxconv::python
