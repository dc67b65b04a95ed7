/* A libcuda.so.1 that launches nothing and counts what it is asked, for tests of
 * libderate_progress.so. A function's handle is its name; a graph's the number of its nodes; each
 * thread is on the device that it has set last. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
} Config;

static uint64_t kernels_, graphs_, waits_, copies_;
static __thread int device_;
static int refuses_;

#define ADD(place) __atomic_fetch_add(&(place), 1, __ATOMIC_RELAXED)
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, PER_THREAD = 2 };

/* Of the stub alone. */
uint64_t stub_kernels(void) { return kernels_; }
uint64_t stub_graphs(void) { return graphs_; }
uint64_t stub_waits(void) { return waits_; }
uint64_t stub_copies(void) { return copies_; }
void stub_refuse(int whether) { refuses_ = whether; }

static int launch(void) {
  if (refuses_) return INVALID_VALUE;
  ADD(kernels_);
  return SUCCESS;
}

#define KERNEL_PARAMETERS                                                                       \
  void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
      unsigned shared, void *stream, void **parameters
#define UNUSED                                                                              \
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, \
      (void)stream, (void)parameters

int cuInit(unsigned flags) { return (int)(flags * 0); }
int cuLaunchKernel(KERNEL_PARAMETERS, void** extra) {
  UNUSED, (void)extra;
  return launch();
}
int cuLaunchKernel_ptsz(KERNEL_PARAMETERS, void** extra) {
  UNUSED, (void)extra;
  return launch();
}
int cuLaunchCooperativeKernel(KERNEL_PARAMETERS) {
  UNUSED;
  return launch();
}
int cuLaunchCooperativeKernel_ptsz(KERNEL_PARAMETERS) {
  UNUSED;
  return launch();
}
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void** extra) {
  (void)config, (void)function, (void)parameters, (void)extra;
  return launch();
}
int cuLaunchKernelEx_ptsz(const Config* config, void* function, void** parameters, void** extra) {
  return cuLaunchKernelEx(config, function, parameters, extra);
}
int cuGraphLaunch(void* graph, void* stream) {
  return (void)graph, (void)stream, ADD(graphs_), SUCCESS;
}
int cuGraphLaunch_ptsz(void* graph, void* stream) { return cuGraphLaunch(graph, stream); }
int cuGraphInstantiateWithFlags(void** made, void* graph, uint64_t flags) {
  (void)flags;
  *made = (char*)graph + 0x10000;
  return SUCCESS;
}
int cuGraphInstantiateWithParams(void** made, void* graph, void* parameters) {
  (void)parameters;
  return cuGraphInstantiateWithFlags(made, graph, 0);
}
int cuGraphGetNodes(void* graph, void* nodes, size_t* count) {
  (void)nodes;
  *count = (size_t)graph;
  return SUCCESS;
}
int cuStreamSynchronize(void* stream) { return (void)stream, ADD(waits_), SUCCESS; }
int cuStreamSynchronize_ptsz(void* stream) { return cuStreamSynchronize(stream); }
int cuEventSynchronize(void* event) { return (void)event, ADD(waits_), SUCCESS; }
int cuCtxSynchronize(void) { return ADD(waits_), SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* stream) {
  return (void)to, (void)from, (void)size, (void)stream, ADD(copies_), SUCCESS;
}
int cuCtxGetDevice(int* device) { return *device = device_, SUCCESS; }
int cuCtxSetCurrent(void* context) { return device_ = (int)(intptr_t)context, SUCCESS; }
int cuDeviceGetUuid_v2(void* uuid, int device) {
  memset(uuid, 0xa0 + device, 16);
  return SUCCESS;
}
int cuFuncGetName(const char** name, void* function) { return *name = function, SUCCESS; }

int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags, int* status);

#define FUNCTIONS(_)              \
  _(cuInit)                       \
  _(cuLaunchKernel)               \
  _(cuLaunchCooperativeKernel)    \
  _(cuLaunchKernelEx)             \
  _(cuGraphLaunch)                \
  _(cuGraphInstantiateWithFlags)  \
  _(cuGraphInstantiateWithParams) \
  _(cuGraphGetNodes)              \
  _(cuStreamSynchronize)          \
  _(cuEventSynchronize) _(cuCtxSynchronize) _(cuCtxGetDevice) _(cuCtxSetCurrent)
#define PER_THREAD_FUNCTIONS(_) \
  _(cuLaunchKernel)             \
  _(cuLaunchCooperativeKernel) _(cuLaunchKernelEx) _(cuGraphLaunch) _(cuStreamSynchronize)

int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  *found = NULL;
#define PER_THREAD_ONE(name) \
  if ((flags & PER_THREAD) && strcmp(symbol, #name) == 0) *found = (void*)name##_ptsz;
  PER_THREAD_FUNCTIONS(PER_THREAD_ONE)
#define ONE(name) \
  if (*found == NULL && strcmp(symbol, #name) == 0) *found = (void*)name;
  FUNCTIONS(ONE)
  if (strcmp(symbol, "cuMemcpyHtoDAsync") == 0) *found = (void*)cuMemcpyHtoDAsync_v2;
  if (strcmp(symbol, "cuMemcpyDtoDAsync") == 0) *found = (void*)cuMemcpyDtoDAsync_v2;
  if (strcmp(symbol, "cuMemcpyDtoHAsync") == 0) *found = (void*)cuMemcpyDtoHAsync_v2;
  if (strcmp(symbol, "cuGetProcAddress") == 0)
    *found = version >= 12000 ? (void*)cuGetProcAddress_v2 : (void*)cuGetProcAddress;
  return *found != NULL ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                        int* status) {
  const int result = cuGetProcAddress(symbol, found, version, flags);
  if (status != NULL) *status = result == SUCCESS ? 0 : 1;
  return result;
}
