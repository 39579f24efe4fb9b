// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <nanobind/stl/string.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "arguments.h"

namespace voxconv::python {
namespace {

using nb::dlpack::dtype_code;

constexpr int kDLCpu = nb::device::cpu::value, kDLCuda = nb::device::cuda::value;
constexpr int kDLCudaHost = nb::device::cuda_host::value;  // page-locked memory of the host

// "torch", "numpy", ...: the package of the object's type.
std::string PackageOf(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  std::string name;
  if (!nb::try_cast(module, name)) return "";
  return name.substr(0, name.find('.'));
}

// Whether Python's framework would have to follow what happens to the array.
bool RequiresGrad(nb::handle object) {
  const nb::object flag = nb::getattr(object, "requires_grad", nb::none());
  bool requires_grad = false;
  return nb::try_cast(flag, requires_grad) && requires_grad;
}

// The type and the index of the device, as DLPack numbers them.
std::pair<int, int> DeviceOf(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return {kDLCpu, 0};
  const nb::object device = object.attr("__dlpack_device__")();
  const int type = nb::cast<int>(device[0]);
  if (type == kDLCudaHost) return {kDLCpu, 0};
  return {type, nb::cast<int>(device[1])};
}

int64_t SizeOfView(const ArrayView& view) {
  int64_t size = 1;
  for (int axis = 0; axis < view.ndim; ++axis) size *= view.shape[axis];
  return size;
}

bool IsContiguous(const ArrayView& view) {
  if (SizeOfView(view) == 0) return true;  // whatever the strides
  int64_t expected = 1;
  for (int axis = view.ndim - 1; axis >= 0; --axis) {
    if (view.shape[axis] != 1 && view.stride[axis] != expected) return false;
    expected *= view.shape[axis];
  }
  return true;
}

absl::StatusOr<DType> DTypeOf(const nb::dlpack::dtype& dtype) {
  for (const DType known : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (dtype == DLPackOf(known)) return known;
  }
  return absl::InvalidArgumentError("");
}

// An array of the framework that `Framework` names.
template <typename... Annotations>
nb::object Export(void* data, const std::vector<int64_t>& shape, nb::dlpack::dtype dtype,
                  int device_type, int device_id, nb::handle owner) {
  const std::vector<size_t> extents(shape.begin(), shape.end());
  const nb::ndarray<Annotations...> array(data, extents.size(), extents.data(), owner, nullptr,
                                          dtype, device_type, device_id);
  return nb::cast(array, nb::rv_policy::reference);
}

bool IsLoaded(const char* module) {
  return nb::cast<bool>(nb::module_::import_("sys").attr("modules").attr("__contains__")(module));
}

}  // namespace

InArray::InArray(const char* name, nb::handle object, Giver giver)
    : name_(name), object_(nb::borrow(object)) {
  if (giver == Giver::kUser && RequiresGrad(object)) {
    ThrowValueError(absl::StrCat(name,
                                 ": requires a gradient, which this function does not pass "
                                 "on; give it a detached array"));
  }
  Take(giver);
  if (giver == Giver::kModule && !IsContiguous(view_)) {
    object_ = object_.attr("contiguous")();
    Take(giver);
  }
  if (!IsContiguous(view_)) {
    const int64_t* stride = view_.stride.data();
    ThrowValueError(absl::StrCat(name, ": shape ", ShapeText(), " with strides [",
                                 absl::StrJoin(stride, stride + ndim(), ", "),
                                 "] is not contiguous; a row-major array without gaps is needed"));
  }
}

void InArray::Take(Giver giver) {
  if (TakeByExchange()) return;
  // DLPack's capsules are not made of tensors that require a gradient.
  if (giver != Giver::kUser && RequiresGrad(object_)) object_ = object_.attr("detach")();
  TakeByCapsule();
}

bool InArray::TakeByExchange() {
  const std::optional<Exchange> exchange = Exchange::Of(object_);
  if (!exchange.has_value()) return false;
  const std::optional<ArrayView> view = exchange->View(object_);
  if (!view.has_value()) return false;
  if (view->device_type == kDLCuda) {
    const auto stream = exchange->CurrentStream(kDLCuda, view->device_index);
    if (!stream.has_value()) return false;
    engine_ = CudaEngine(view->device_index, *stream);
  } else if (view->device_type == kDLCpu) {
    engine_ = CpuEngine();
  } else {
    return false;
  }
  view_ = *view;
  return true;
}

void InArray::TakeByCapsule() {
  const auto [device_type, device_id] = DeviceOf(object_);
  if (device_type != kDLCpu && device_type != kDLCuda) {
    ThrowValueError(absl::StrCat(name_, ": lies on device type ", device_type,
                                 " of DLPack; allowed are 1 (CPU) and 2 (CUDA)"));
  }
  nb::object source = object_;
  if (device_type == kDLCuda) {
    const uintptr_t stream = CurrentStream(device_id);
    engine_ = CudaEngine(device_id, stream);
    // DLPack calls the legacy default stream 1.
    source = object_.attr("__dlpack__")(nb::arg("stream") = stream == 0 ? 1 : stream);
  } else {
    engine_ = CpuEngine();
  }
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(source, array, /*convert=*/false)) {
    ThrowTypeError(
        absl::StrCat(name_, ": ", TypeText(object_),
                     " is no array of numbers that DLPack or the buffer protocol shares"));
  }
  if (array.ndim() > ArrayView::kMaxRank) {
    ThrowValueError(absl::StrCat(name_, ": has ", array.ndim(), " axes; at most ",
                                 ArrayView::kMaxRank, " are allowed"));
  }
  view_ = {.data = const_cast<void*>(static_cast<const void*>(array.data())),
           .ndim = static_cast<int>(array.ndim()),
           .dtype = array.dtype(),
           .device_type = device_type,
           .device_index = device_id};
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    view_.shape[axis] = static_cast<int64_t>(array.shape(axis));
    view_.stride[axis] = array.stride(axis);
  }
  capsule_ = std::move(array);
}

int64_t InArray::size() const { return SizeOfView(view_); }

void InArray::CheckRank(int ndim, const char* shape) const {
  if (this->ndim() == ndim) return;
  ThrowValueError(absl::StrCat(name_, ": shape ", ShapeText(), "; ", shape, " is needed"));
}

void InArray::CheckOn(Engine& engine) const {
  if (Fit(*engine_, engine)) return;
  if (engine_->backend().device() == engine.backend().device()) {
    ThrowValueError(absl::StrCat(name_,
                                 ": was made for another CUDA stream than the other "
                                 "arguments; all must belong to the current stream"));
  }
  ThrowValueError(absl::StrCat(name_, ": lies on ", DeviceName(*engine_),
                               "; the other arguments lie on ", DeviceName(engine)));
}

ConstTensorView InArray::Matrix() const {
  const absl::StatusOr<DType> dtype = DTypeOf(view_.dtype);
  const bool on_cpu = !engine_->backend().asynchronous();
  if (!dtype.ok() || (on_cpu && *dtype != DType::kF32)) {
    ThrowValueError(absl::StrCat(
        name_, ": dtype ", DTypeText(), "; ",
        on_cpu ? "on the CPU float32 is needed" : "allowed are float32, float16 and bfloat16"));
  }
  const int64_t channels = ndim() == 0 ? 1 : shape(static_cast<int>(ndim()) - 1);
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < ndim(); ++axis) rows *= shape(axis);
  return {data(), rows, channels, *dtype, engine_->backend().device(), channels};
}

std::string InArray::ShapeText() const {
  return NpyShapeString(absl::MakeConstSpan(view_.shape.data(), static_cast<size_t>(ndim())));
}

std::string NameOf(nb::dlpack::dtype dtype) {
  switch (static_cast<dtype_code>(dtype.code)) {
    case dtype_code::Int:
      return absl::StrCat("int", dtype.bits);
    case dtype_code::UInt:
      return absl::StrCat("uint", dtype.bits);
    case dtype_code::Float:
      return absl::StrCat("float", dtype.bits);
    case dtype_code::Bfloat:
      return absl::StrCat("bfloat", dtype.bits);
    case dtype_code::Complex:
      return absl::StrCat("complex", dtype.bits);
    case dtype_code::Bool:
      return "bool";
    default:
      return absl::StrCat("of DLPack's code ", dtype.code);
  }
}

TensorView OutMatrix(const InArray& array, const std::vector<int64_t>& shape, DType dtype,
                     Engine& engine, const std::vector<ConstTensorView>& inputs) {
  array.CheckOn(engine);
  const ConstTensorView view = array.Matrix();
  const std::string needed = NpyShapeString(shape);
  if (array.ShapeText() != needed) {
    ThrowValueError(
        absl::StrCat(array.name(), ": shape ", array.ShapeText(), "; ", needed, " is needed"));
  }
  if (view.dtype != dtype) {
    ThrowValueError(absl::StrCat(array.name(), ": dtype ", array.DTypeText(), "; ", ToString(dtype),
                                 " is needed, as of the other arguments"));
  }
  nb::ndarray<> writable;
  // Frameworks with C functions have no read-only arrays.
  if (!array.engine()->backend().asynchronous() && !Exchange::Of(array.object()).has_value() &&
      !nb::try_cast(array.object(), writable, /*convert=*/false)) {
    ThrowValueError(absl::StrCat(array.name(), ": is read-only"));
  }
  if (absl::StartsWith(PackageOf(array.object()), "jax")) {
    ThrowValueError(absl::StrCat(array.name(), ": arrays of JAX are immutable"));
  }
  const char* begin = static_cast<const char*>(view.data);
  for (const ConstTensorView& input : inputs) {
    const char* other = static_cast<const char*>(input.data);
    if (view.bytes() == 0 || input.bytes() == 0) continue;
    if (begin < other + input.bytes() && other < begin + view.bytes()) {
      ThrowValueError(absl::StrCat(array.name(), ": overlaps another argument"));
    }
  }
  return Writable(view);
}

void CountWrite(nb::handle array) {
  const nb::object torch = LoadedModule("torch");
  if (torch.is_none() || !nb::isinstance(array, torch.attr("Tensor"))) return;
  if (nb::cast<bool>(array.attr("is_inference")())) return;  // has no counter
  const nb::object graph = torch.attr("autograd").attr("graph");
  if (nb::hasattr(graph, "increment_version")) {
    graph.attr("increment_version")(array);
  } else {  // before PyTorch 2.1: a write of nothing
    array[nb::slice(nb::int_(0), nb::int_(0), nb::none())].attr("zero_")();
  }
}

TensorView Writable(const ConstTensorView& view) {
  return {const_cast<void*>(view.data),
          view.rows,
          view.channels,
          view.dtype,
          view.device,
          view.row_stride};
}

void CheckCoordinates(const InArray& array) {
  array.CheckRank(2, "[N, 4] (batch, x, y, z)");
  if (array.shape(1) != 4) array.CheckRank(-1, "[N, 4] (batch, x, y, z)");
  if (!array.Is<int32_t>()) {
    ThrowValueError(absl::StrCat(array.name(), ": dtype ", array.DTypeText(), "; int32 is needed"));
  }
}

std::vector<Coordinate> ReadCoordinates(const InArray& array) {
  CheckCoordinates(array);
  std::vector<Coordinate> rows(array.shape(0));
  const auto bytes = static_cast<int64_t>(rows.size() * sizeof(Coordinate));
  if (bytes == 0) return rows;
  RunOn(*array.engine(), [&](const ExecutionContext& context) -> absl::Status {
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(rows.data(), MemorySpace::kHost, array.data(),
                                                  context.backend->device().space, bytes,
                                                  *context.stream));
    return context.stream->Synchronize();
  });
  return rows;
}

NpyArray HostFloats(const char* name, nb::handle object) {
  const InArray array(name, object);
  if (array.engine()->backend().asynchronous() || !array.Is<float>()) {
    ThrowValueError(absl::StrCat(name, ": ", array.DTypeText(), " on ", DeviceName(*array.engine()),
                                 "; float32 on the CPU is needed"));
  }
  std::vector<int64_t> shape(array.ndim());
  for (int axis = 0; axis < array.ndim(); ++axis) shape[axis] = array.shape(axis);
  return MakeNpyArray(shape, absl::MakeConstSpan(static_cast<const float*>(array.data()),
                                                 static_cast<size_t>(array.size())));
}

nb::dlpack::dtype DLPackOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {static_cast<uint8_t>(dtype_code::Float), 32, 1};
    case DType::kF16:
      return {static_cast<uint8_t>(dtype_code::Float), 16, 1};
    case DType::kBF16:
      return {static_cast<uint8_t>(dtype_code::Bfloat), 16, 1};
  }
  return {};
}

nb::object OutArray(void* data, const std::vector<int64_t>& shape, nb::dlpack::dtype dtype,
                    const Device& device, const nb::object& owner, nb::handle like) {
  const bool on_cpu = device.space == MemorySpace::kHost;
  const int type = on_cpu ? kDLCpu : kDLCuda;
  const std::string package = like.is_valid() ? PackageOf(like) : "";
  if (package == "torch" || (!on_cpu && package.empty() && IsLoaded("torch"))) {
    return Export<nb::pytorch>(data, shape, dtype, type, device.index, owner);
  }
  if (absl::StartsWith(package, "jax")) {
    return Export<nb::jax>(data, shape, dtype, type, device.index, owner);
  }
  if (on_cpu) return Export<nb::numpy>(data, shape, dtype, type, device.index, owner);
  if (package == "cupy" || (package.empty() && IsLoaded("cupy"))) {
    return Export<nb::cupy>(data, shape, dtype, type, device.index, owner);
  }
  return Export<nb::array_api>(data, shape, dtype, type, device.index, owner);
}

nb::object ReadOnlyArray(const void* data, const std::vector<int64_t>& shape,
                         nb::dlpack::dtype dtype, const Device& device, const nb::object& owner) {
  void* const memory = const_cast<void*>(data);
  if (device.space != MemorySpace::kHost) {
    return OutArray(memory, shape, dtype, device, owner, {});
  }
  return Export<nb::numpy, nb::ro>(memory, shape, dtype, kDLCpu, 0, owner);
}

std::optional<NewArray> NewArray::Create(Engine& engine, const std::vector<int64_t>& shape,
                                         DType dtype, nb::handle like) {
  const std::optional<Exchange> exchange = Exchange::Of(like);
  if (!exchange.has_value()) return std::nullopt;
  const Device device = engine.backend().device();
  const int type = device.space == MemorySpace::kHost ? kDLCpu : kDLCuda;
  NewArray made;
  ArrayView view;
  made.object = exchange->New(shape, DLPackOf(dtype), type, device.index, view);
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  const int64_t channels = shape.back();
  made.matrix = {
      rows * channels == 0 ? nullptr : view.data, rows, channels, dtype, device, channels};
  return made;
}

nb::object OutTensor(const EnginePtr& engine, Tensor tensor, const std::vector<int64_t>& shape,
                     nb::handle like) {
  const TensorView view = tensor.view();
  return OutArray(view.data, shape, DLPackOf(view.dtype), view.device,
                  Keep(Hold(engine, std::move(tensor))), like);
}

}  // namespace voxconv::python
