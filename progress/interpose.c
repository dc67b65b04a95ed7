/* Stands before dlsym() and, through it, before cuGetProcAddress(): who asks for a function of the
 * driver that launches gets one that counts and calls it. Nothing else changes. Programs that are
 * linked with libcuda get the same functions by their names. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "count.h"
#include "elf_lookup.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "dlsym() is told who calls it by its return address: another processor needs its own jump"
#endif

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_INITIALIZED = 3 }; /* CUresult */
enum { PER_THREAD_STREAMS = 2 };           /* a flag of cuGetProcAddress */

typedef struct {
  unsigned grid_x, grid_y, grid_z; /* and more: CUlaunchConfig */
  unsigned block_x, block_y, block_z, shared_bytes;
  void* stream;
} LaunchConfig;

static derate_driver_calls driver_;

static void ask_the_driver(void) {
  if (__atomic_load_n(&driver_.device_of_context, __ATOMIC_ACQUIRE) != NULL) return;
  driver_.uuid_of_device =
      (int (*)(void*, int))derate_symbol_in("libcuda.so", "cuDeviceGetUuid_v2");
  if (driver_.uuid_of_device == NULL)
    driver_.uuid_of_device = (int (*)(void*, int))derate_symbol_in("libcuda.so", "cuDeviceGetUuid");
  driver_.name_of_function =
      (int (*)(const char**, void*))derate_symbol_in("libcuda.so", "cuFuncGetName");
  driver_.name_of_kernel =
      (int (*)(const char**, void*))derate_symbol_in("libcuda.so", "cuKernelGetName");
  driver_.nodes_of_graph =
      (int (*)(void*, void*, size_t*))derate_symbol_in("libcuda.so", "cuGraphGetNodes");
  __atomic_store_n(&driver_.device_of_context,
                   (int (*)(int*))derate_symbol_in("libcuda.so", "cuCtxGetDevice"),
                   __ATOMIC_RELEASE);
}

/* --- the functions that count ----------------------------------------------------------------- */

/* Of each, what the driver has behind its name; and of programs that are linked with libcuda, where
 * to look for it. */
typedef void (*Function)(void);
static Function driver_function(Function* known, const char* name) {
  Function found = __atomic_load_n(known, __ATOMIC_ACQUIRE);
  if (found != NULL) return found;
  ask_the_driver();
  found = (Function)derate_symbol_in("libcuda.so", name);
  __atomic_store_n(known, found, __ATOMIC_RELEASE);
  return found;
}

#define LAUNCH_KERNEL(name)                                                                   \
  static Function real_##name;                                                                \
  SHOWN int name(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                 void* stream, void** parameters, void** extra) {                             \
    typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                          unsigned, void*, void**, void**);                                   \
    const Launch real = (Launch)driver_function(&real_##name, #name);                         \
    if (real == NULL) return NOT_INITIALIZED;                                                 \
    const int result = real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,      \
                            shared_bytes, stream, parameters, extra);                         \
    if (result == SUCCESS)                                                                    \
      derate_count_launch(&driver_, function, stream, (uint64_t)grid_x* grid_y* grid_z);      \
    return result;                                                                            \
  }

#define LAUNCH_COOPERATIVE(name)                                                              \
  static Function real_##name;                                                                \
  SHOWN int name(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                 void* stream, void** parameters) {                                           \
    typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                          unsigned, void*, void**);                                           \
    const Launch real = (Launch)driver_function(&real_##name, #name);                         \
    if (real == NULL) return NOT_INITIALIZED;                                                 \
    const int result = real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,      \
                            shared_bytes, stream, parameters);                                \
    if (result == SUCCESS)                                                                    \
      derate_count_launch(&driver_, function, stream, (uint64_t)grid_x* grid_y* grid_z);      \
    return result;                                                                            \
  }

#define LAUNCH_WITH_CONFIG(name)                                                                \
  static Function real_##name;                                                                  \
  SHOWN int name(const LaunchConfig* config, void* function, void** parameters, void** extra) { \
    typedef int (*Launch)(const LaunchConfig*, void*, void**, void**);                          \
    const Launch real = (Launch)driver_function(&real_##name, #name);                           \
    if (real == NULL) return NOT_INITIALIZED;                                                   \
    const int result = real(config, function, parameters, extra);                               \
    if (result == SUCCESS)                                                                      \
      derate_count_launch(&driver_, function, config->stream,                                   \
                          (uint64_t)config->grid_x * config->grid_y * config->grid_z);          \
    return result;                                                                              \
  }

#define LAUNCH_GRAPH(name)                                              \
  static Function real_##name;                                          \
  SHOWN int name(void* graph, void* stream) {                           \
    typedef int (*Launch)(void*, void*);                                \
    const Launch real = (Launch)driver_function(&real_##name, #name);   \
    if (real == NULL) return NOT_INITIALIZED;                           \
    const int result = real(graph, stream);                             \
    if (result == SUCCESS) derate_count_graph(&driver_, graph, stream); \
    return result;                                                      \
  }

#define MAKE_GRAPH(name, Last)                                                        \
  static Function real_##name;                                                        \
  SHOWN int name(void** made, void* graph, Last last) {                               \
    typedef int (*Make)(void**, void*, Last);                                         \
    const Make real = (Make)driver_function(&real_##name, #name);                     \
    if (real == NULL) return NOT_INITIALIZED;                                         \
    const int result = real(made, graph, last);                                       \
    if (result == SUCCESS && made != NULL) derate_note_graph(&driver_, *made, graph); \
    return result;                                                                    \
  }

/* An upload, a download, a wait: of these only their number is of interest. */
#define COUNT_CALL(name, count, parameters, arguments)            \
  static Function real_##name;                                    \
  SHOWN int name parameters {                                     \
    typedef int(*Call) parameters;                                \
    const Call real = (Call)driver_function(&real_##name, #name); \
    if (real == NULL) return NOT_INITIALIZED;                     \
    const int result = real arguments;                            \
    if (result == SUCCESS) count(&driver_);                       \
    return result;                                                \
  }

#define COPY_ON_DEVICE(name)                                                 \
  static Function real_##name;                                               \
  SHOWN int name(uint64_t to, uint64_t from, size_t size, void* stream) {    \
    typedef int (*Copy)(uint64_t, uint64_t, size_t, void*);                  \
    const Copy real = (Copy)driver_function(&real_##name, #name);            \
    if (real == NULL) return NOT_INITIALIZED;                                \
    const int result = real(to, from, size, stream);                         \
    if (result == SUCCESS) derate_count_device_copy(&driver_, stream, size); \
    return result;                                                           \
  }

LAUNCH_KERNEL(cuLaunchKernel)
LAUNCH_KERNEL(cuLaunchKernel_ptsz)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)
LAUNCH_WITH_CONFIG(cuLaunchKernelEx)
LAUNCH_WITH_CONFIG(cuLaunchKernelEx_ptsz)
LAUNCH_GRAPH(cuGraphLaunch)
LAUNCH_GRAPH(cuGraphLaunch_ptsz)
MAKE_GRAPH(cuGraphInstantiateWithFlags, uint64_t)
MAKE_GRAPH(cuGraphInstantiateWithParams, void*)
MAKE_GRAPH(cuGraphInstantiateWithParams_ptsz, void*)
COPY_ON_DEVICE(cuMemcpyAsync)
COPY_ON_DEVICE(cuMemcpyAsync_ptsz)
COPY_ON_DEVICE(cuMemcpyDtoDAsync_v2)
COPY_ON_DEVICE(cuMemcpyDtoDAsync_v2_ptsz)
COUNT_CALL(cuStreamSynchronize, derate_count_wait, (void* stream), (stream))
COUNT_CALL(cuStreamSynchronize_ptsz, derate_count_wait, (void* stream), (stream))
COUNT_CALL(cuEventSynchronize, derate_count_wait, (void* event), (event))
COUNT_CALL(cuCtxSynchronize, derate_count_wait, (void), ())
COUNT_CALL(cuMemcpyHtoDAsync_v2, derate_count_copy,
           (uint64_t to, const void* from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyHtoDAsync_v2_ptsz, derate_count_copy,
           (uint64_t to, const void* from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyDtoHAsync_v2, derate_count_copy,
           (void* to, uint64_t from, size_t size, void* stream), (to, from, size, stream))
COUNT_CALL(cuMemcpyDtoHAsync_v2_ptsz, derate_count_copy,
           (void* to, uint64_t from, size_t size, void* stream), (to, from, size, stream))

/* --- who gets them ---------------------------------------------------------------------------- */

static Function real_cuGetProcAddress, real_cuGetProcAddress_v2;

SHOWN int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags);
SHOWN int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                              int* status);

/* `name` as the driver's library shows it; `asked` as cuGetProcAddress() is asked. */
typedef struct {
  const char *name, *asked;
  bool per_thread;
  Function counting;
  Function* real;
} Hook;

#define HOOK(name, asked, per_thread) \
  { #name, asked, per_thread, (Function)name, &real_##name }
static const Hook kHooks[] = {
    HOOK(cuGetProcAddress, "", false),
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", false),
    HOOK(cuLaunchKernel, "cuLaunchKernel", false),
    HOOK(cuLaunchKernel_ptsz, "cuLaunchKernel", true),
    HOOK(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", false),
    HOOK(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", true),
    HOOK(cuLaunchKernelEx, "cuLaunchKernelEx", false),
    HOOK(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", true),
    HOOK(cuGraphLaunch, "cuGraphLaunch", false),
    HOOK(cuGraphLaunch_ptsz, "cuGraphLaunch", true),
    HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", false),
    HOOK(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", false),
    HOOK(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", true),
    HOOK(cuMemcpyAsync, "cuMemcpyAsync", false),
    HOOK(cuMemcpyAsync_ptsz, "cuMemcpyAsync", true),
    HOOK(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", false),
    HOOK(cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", true),
    HOOK(cuStreamSynchronize, "cuStreamSynchronize", false),
    HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", true),
    HOOK(cuEventSynchronize, "cuEventSynchronize", false),
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", false),
    HOOK(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", false),
    HOOK(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", true),
    HOOK(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", false),
    HOOK(cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", true),
};
enum { HOOKS = sizeof kHooks / sizeof *kHooks };

/* The counting function in place of the driver's. Where another one stands behind the same name
 * already (a second driver, a tool's), what was asked for is handed out as it is. */
static void* in_place_of(const Hook* hook, void* found) {
  Function before = NULL;
  if (found == (void*)hook->counting) return found;
  ask_the_driver();
  if (__atomic_compare_exchange_n(hook->real, &before, (Function)found, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE) ||
      before == (Function)found)
    return (void*)hook->counting;
  return found;
}

static void take_place(const char* symbol, void** found, uint64_t flags, bool second) {
  const bool per_thread = (flags & PER_THREAD_STREAMS) != 0;
  if (symbol == NULL || found == NULL || *found == NULL) return;
  if (strcmp(symbol, "cuGetProcAddress") == 0) {
    *found = in_place_of(&kHooks[second ? 1 : 0], *found);
    return;
  }
  for (int i = 2; i < HOOKS; ++i)
    if (kHooks[i].per_thread == per_thread && strcmp(symbol, kHooks[i].asked) == 0)
      *found = in_place_of(&kHooks[i], *found);
}

SHOWN int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  typedef int (*Call)(const char*, void**, int, uint64_t);
  const Call real = (Call)driver_function(&real_cuGetProcAddress, "cuGetProcAddress");
  if (real == NULL) return NOT_INITIALIZED;
  const int result = real(symbol, found, version, flags);
  if (result == SUCCESS) take_place(symbol, found, flags, version >= 12000);
  return result;
}

SHOWN int cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags,
                              int* status) {
  typedef int (*Call)(const char*, void**, int, uint64_t, int*);
  const Call real = (Call)driver_function(&real_cuGetProcAddress_v2, "cuGetProcAddress_v2");
  if (real == NULL) return NOT_INITIALIZED;
  const int result = real(symbol, found, version, flags, status);
  if (result == SUCCESS) take_place(symbol, found, flags, version >= 12000);
  return result;
}

/* --- dlsym ------------------------------------------------------------------------------------ */

SHOWN void* dlsym(void* handle, const char* name);

/* Where dlsym() goes on; called by it before anything else. */
__attribute__((used)) Function derate_real_dlsym(void) {
  static Function real;
  Function found = __atomic_load_n(&real, __ATOMIC_ACQUIRE);
  if (found == NULL) {
    found = (Function)derate_next_symbol("dlsym", (void*)dlsym);
    __atomic_store_n(&real, found, __ATOMIC_RELEASE);
  }
  return found;
}

/* What dlsym() answers in place of the driver's function; NULL: it goes on. With RTLD_NEXT, which
 * other libraries that stand before functions ask, it always does. */
__attribute__((used)) void* derate_dlsym_answer(void* handle, const char* name) {
  typedef void* (*Find)(void*, const char*);
  if (name == NULL || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) return NULL;
  for (int i = 0; i < HOOKS; ++i) {
    if (strcmp(name, kHooks[i].name) != 0) continue;
    const Find real = (Find)derate_real_dlsym();
    void* const found = real == NULL ? NULL : real(handle, name);
    return found == NULL ? NULL : in_place_of(&kHooks[i], found);
  }
  return NULL;
}

/* dlsym() itself jumps, so that the real one sees who called: RTLD_NEXT and RTLD_DEFAULT mean
 * something else for each caller. */
#if defined(__x86_64__)
__asm__(
    ".text\n.globl dlsym\n.type dlsym,@function\n"
    "dlsym:\n"
    "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
    "  call derate_dlsym_answer\n"
    "  test %rax, %rax\n  jne 1f\n"
    "  call derate_real_dlsym\n"
    "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n"
    "  test %rax, %rax\n  je 2f\n"
    "  jmp *%rax\n"
    "1: add $24, %rsp\n"
    "2: ret\n"
    ".size dlsym, .-dlsym\n");
#else
__asm__(
    ".text\n.globl dlsym\n.type dlsym,%function\n"
    "dlsym:\n"
    "  stp x29, x30, [sp, #-32]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n"
    "  bl derate_dlsym_answer\n"
    "  cbnz x0, 1f\n"
    "  bl derate_real_dlsym\n"
    "  mov x16, x0\n"
    "  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n"
    "  cbz x16, 2f\n"
    "  br x16\n"
    "2: mov x0, xzr\n  ret\n"
    "1: ldp x29, x30, [sp], #32\n  ret\n"
    ".size dlsym, .-dlsym\n");
#endif
