// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

#include <cstring>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "status.h"

namespace voxconv::python {

// The structs below are those of DLPack's specification, version 1.3.
struct DLPackVersion {
  uint32_t major, minor;
};

struct DLPackTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  nb::dlpack::dtype dtype;
  int64_t* shape;
  int64_t* strides;  // null: contiguous
  uint64_t byte_offset;
};

struct DLPackManaged {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLPackManaged*);
  uint64_t flags;
  DLPackTensor tensor;
};

struct ExchangeApi {
  DLPackVersion version;
  ExchangeApi* previous;
  int (*allocate)(DLPackTensor* prototype, DLPackManaged** out, void* error_context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*from_object)(void* object, DLPackManaged** out);
  int (*to_object)(DLPackManaged* tensor, void** object);
  int (*view_object)(void* object, DLPackTensor* out);  // may be null
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

namespace {

constexpr uint32_t kMajorVersion = 1;
constexpr char kAttribute[] = "__dlpack_c_exchange_api__";

// The table of a type, or null.
const ExchangeApi* FindApi(nb::handle type) {
  nb::object attribute = nb::getattr(type, kAttribute, nb::none());
  if (attribute.is_none() || !PyCapsule_IsValid(attribute.ptr(), "dlpack_exchange_api")) {
    return nullptr;
  }
  const auto* api =
      static_cast<const ExchangeApi*>(PyCapsule_GetPointer(attribute.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major > kMajorVersion) api = api->previous;
  if (api == nullptr || api->version.major != kMajorVersion || api->view_object == nullptr) {
    return nullptr;
  }
  return api;
}

// Whether the type defines the functions, or is PyTorch's Parameter. A subclass may stand for
// memory that it does not have, as PyTorch's fake tensors do.
bool HasOwn(nb::handle type) {
  const nb::object own = nb::getattr(type, "__dict__", nb::none());
  if (!own.is_none() && nb::cast<bool>(own.attr("__contains__")(kAttribute))) return true;
  const nb::object module = nb::getattr(type, "__module__", nb::none());
  const nb::object name = nb::getattr(type, "__name__", nb::none());
  return module.equal(nb::str("torch.nn.parameter")) && name.equal(nb::str("Parameter"));
}

void SetError(void* context, const char* kind, const char* message) {
  *static_cast<std::string*>(context) = absl::StrCat(kind, ": ", message);
}

// Refuses what the fixed arrays of a view cannot hold.
std::optional<ArrayView> ToView(const DLPackTensor& tensor) {
  if (tensor.ndim > ArrayView::kMaxRank) return std::nullopt;
  ArrayView view{.data = static_cast<char*>(tensor.data) + tensor.byte_offset,
                 .ndim = tensor.ndim,
                 .dtype = tensor.dtype,
                 .device_type = tensor.device_type,
                 .device_index = tensor.device_id};
  int64_t dense = 1;
  for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
    view.shape[axis] = tensor.shape[axis];
    view.stride[axis] = tensor.strides != nullptr ? tensor.strides[axis] : dense;
    dense *= tensor.shape[axis];
  }
  return view;
}

}  // namespace

std::optional<Exchange> Exchange::Of(nb::handle object) {
  // Types are kept, so that no other type gets their address.
  static auto* known = new std::unordered_map<PyObject*, const ExchangeApi*>;
  const nb::handle type = object.type();
  const auto place = known->find(type.ptr());
  const ExchangeApi* api = nullptr;
  if (place != known->end()) {
    api = place->second;
  } else {
    api = HasOwn(type) ? FindApi(type) : nullptr;
    type.inc_ref();
    known->emplace(type.ptr(), api);
  }
  if (api == nullptr) return std::nullopt;
  return Exchange(api);
}

std::optional<Exchange> Exchange::OfTorch() {
  static const ExchangeApi* found = nullptr;
  if (found == nullptr) {
    const nb::object torch =
        nb::module_::import_("sys").attr("modules").attr("get")("torch", nb::none());
    const nb::object type = nb::getattr(torch, "Tensor", nb::none());
    if (type.is_none()) return std::nullopt;
    found = FindApi(type);
  }
  if (found == nullptr) return std::nullopt;
  return Exchange(found);
}

std::optional<ArrayView> Exchange::View(nb::handle object) const {
  DLPackTensor tensor{};
  if (api_->view_object(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return ToView(tensor);
}

std::optional<uintptr_t> Exchange::CurrentStream(int device_type, int device_index) const {
  void* stream = nullptr;
  if (api_->current_stream(device_type, device_index, &stream) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return reinterpret_cast<uintptr_t>(stream);
}

nb::object Exchange::New(const std::vector<int64_t>& shape, nb::dlpack::dtype dtype,
                         int device_type, int device_index, ArrayView& view) const {
  std::vector<int64_t> extents = shape;
  DLPackTensor prototype{.data = nullptr,
                         .device_type = device_type,
                         .device_id = device_index,
                         .ndim = static_cast<int32_t>(extents.size()),
                         .dtype = dtype,
                         .shape = extents.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
  DLPackManaged* made = nullptr;
  std::string error;
  if (api_->allocate(&prototype, &made, &error, &SetError) != 0) {
    PyErr_Clear();
    ThrowStatus(absl::ResourceExhaustedError(error));
  }
  view = *ToView(made->tensor);
  void* object = nullptr;
  if (api_->to_object(made, &object) != 0) nb::raise_python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace voxconv::python
