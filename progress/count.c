#define _GNU_SOURCE
#include "count.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hand_over.h"
#include "launch_page.h"

#define MOST_PROBES 8
#define ANNOUNCE_EVERY 1024 /* launches of a thread, between two looks at the clock */

enum { KERNELS = DERATE_LAUNCH_KERNELS - 1, STREAMS = DERATE_LAUNCH_STREAMS - 1, GRAPHS = 256 };

/* What makes a kernel's or a stream's row found again: handles, which no other process needs. */
typedef struct {
  int device;
  uintptr_t kernels[KERNELS];
  uintptr_t streams[STREAMS];
} Keys;

/* Of graphs that can be launched, how many nodes each has. */
typedef struct {
  uintptr_t keys[GRAPHS];
  uint64_t nodes[GRAPHS];
} Graphs;

enum { UNBEGUN, BEGINNING, COUNTING, OFF };

/* A child of fork() finds the mark wiped by the kernel, and makes a page of its own. */
static unsigned char* mark_;
static int state_;
static derate_launch_page* page_;
static Keys keys_[DERATE_LAUNCH_GPUS];
static Graphs graphs_;
static __thread unsigned launches_of_thread_ __attribute__((tls_model("initial-exec")));

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
#define ADD(place, amount) (void)__atomic_fetch_add(&(place), (amount), __ATOMIC_RELAXED)

static bool swap_int(int* place, int from, int to) {
  return __atomic_compare_exchange_n(place, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_of(const void* bytes, size_t size) {
  const unsigned char* at = bytes;
  uint64_t hash = 14695981039346656037ULL;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ at[i]) * 1099511628211ULL;
  return hash == 0 ? 1 : hash;
}

static uint64_t scattered(uintptr_t handle) {
  const uint64_t mixed = (uint64_t)handle * 0x9e3779b97f4a7c15ULL;
  return mixed ^ (mixed >> 32);
}

/* --- the page --------------------------------------------------------------------------------- */

static bool make_mark(void) {
  mark_ = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mark_ == MAP_FAILED || madvise(mark_, 4096, MADV_WIPEONFORK) != 0) return false;
  *mark_ = 1;
  return true;
}

static bool begin(void) {
  derate_launch_page* page;
  if (derate_is_switched_off() || !make_mark()) return false;
  page = derate_make_page(sizeof *page);
  if (page == NULL) return false;
  memset(keys_, 0, sizeof keys_);
  page->size = sizeof *page;
  page->gpu_rows = DERATE_LAUNCH_GPUS;
  page->pid = getpid();
  memcpy(page->magic, DERATE_LAUNCH_MAGIC, sizeof page->magic);
  STORE(page_, page);
  derate_announce_page();
  return true;
}

/* In a child: what it has of its parent's page goes, and it begins anew. */
static void forget(void) {
  if (!swap_int(&state_, COUNTING, BEGINNING)) return;
  derate_drop_page(page_, sizeof *page_);
  munmap(mark_, 4096);
  mark_ = NULL;
  STORE(state_, UNBEGUN);
}

/* NULL: nothing is counted, or another thread is about to begin. */
static derate_launch_page* page(void) {
  if (__builtin_expect(LOAD(state_) == COUNTING && *mark_ == 1, 1)) return page_;
  const int error = errno;
  if (LOAD(state_) == COUNTING) forget();
  if (swap_int(&state_, UNBEGUN, BEGINNING)) STORE(state_, begin() ? COUNTING : OFF);
  errno = error;
  return LOAD(state_) == COUNTING ? page_ : NULL;
}

/* --- rows ------------------------------------------------------------------------------------- */

static int row_of_device(const derate_driver_calls* driver, derate_launch_page* at, int device) {
  for (int i = 0; i < DERATE_LAUNCH_GPUS; ++i) {
    uint64_t used = LOAD(at->gpus[i].used);
    if (used == 2 && keys_[i].device == device) return i;
    if (used == 1) return -1; /* it counts in a moment */
    if (used == 2) continue;
    if (!__atomic_compare_exchange_n(&at->gpus[i].used, &used, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
      return -1;
    keys_[i].device = device;
    if (driver->uuid_of_device != NULL) driver->uuid_of_device(at->gpus[i].uuid, device);
    STORE(at->gpus[i].used, 2);
    return i;
  }
  return -1;
}

/* The current context's; -1: it has none that counts. */
static int row(const derate_driver_calls* driver, derate_launch_page* at) {
  int device = 0;
  if (driver->device_of_context == NULL || driver->device_of_context(&device) != 0) return -1;
  if (__builtin_expect(LOAD(at->gpus[0].used) == 2 && keys_[0].device == device, 1)) return 0;
  return row_of_device(driver, at, device);
}

/* Where a handle is or comes to be in a table of `size` keys; `size` itself: there is no room.
 * `*is_new` where nobody has met it before. */
static size_t place_of(uintptr_t* keys, size_t size, uintptr_t handle, bool* is_new) {
  size_t i =
      (size_t)((scattered(handle) & 0xffffffffU) * size >> 32); /* a division would be dear */
  for (int probe = 0; probe < MOST_PROBES; ++probe, i = i + 1 == size ? 0 : i + 1) {
    uintptr_t found = LOAD(keys[i]);
    if (found == handle) return i;
    if (found != 0) continue;
    if (__atomic_compare_exchange_n(&keys[i], &found, handle, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      *is_new = true;
      return i;
    }
    if (found == handle) return i;
  }
  return size;
}

static uint64_t id_of_function(const derate_driver_calls* driver, void* function) {
  const char* name = NULL;
  if (driver->name_of_function == NULL || driver->name_of_function(&name, function) != 0)
    name = NULL;
  if (name == NULL && driver->name_of_kernel != NULL &&
      driver->name_of_kernel(&name, function) != 0)
    name = NULL;
  return name != NULL ? hash_of(name, strlen(name)) : scattered((uintptr_t)function);
}

static void count_stream(derate_launch_gpu* gpu, Keys* keys, void* stream) {
  const uintptr_t handle = (uintptr_t)stream + 1; /* the default stream is 0 */
  bool is_new = false;
  const size_t place = place_of(keys->streams, STREAMS, handle, &is_new);
  if (is_new) STORE(gpu->streams[place].id, scattered(handle));
  ADD(gpu->streams[place].launches, 1);
}

static void announce_now_and_then(void) {
  if (++launches_of_thread_ % ANNOUNCE_EVERY != 0) return;
  const int error = errno;
  derate_announce_page_again();
  errno = error;
}

/* `id`: 0 for a kernel's, which its name makes. */
typedef struct {
  void *handle, *stream;
  uint64_t id, blocks;
} Launched;

static void count_one(const derate_driver_calls* driver, derate_launch_page* at, int gpu,
                      Launched what) {
  bool is_new = false;
  const size_t place = place_of(keys_[gpu].kernels, KERNELS, (uintptr_t)what.handle, &is_new);
  derate_launch_kernel* const kernel = &at->gpus[gpu].kernels[place];
  if (is_new) STORE(kernel->id, what.id != 0 ? what.id : id_of_function(driver, what.handle));
  ADD(kernel->launches, 1);
  ADD(kernel->blocks, what.blocks);
  count_stream(&at->gpus[gpu], &keys_[gpu], what.stream);
  announce_now_and_then();
}

void derate_count_launch(const derate_driver_calls* driver, void* function, void* stream,
                         uint64_t blocks) {
  derate_launch_page* const at = page();
  const int gpu = at == NULL ? -1 : row(driver, at);
  if (gpu >= 0) count_one(driver, at, gpu, (Launched){function, stream, 0, blocks});
}

void derate_note_graph(const derate_driver_calls* driver, void* executable, void* graph) {
  size_t nodes = 0;
  bool is_new = false;
  if (driver->nodes_of_graph == NULL || driver->nodes_of_graph(graph, NULL, &nodes) != 0) return;
  const size_t place = place_of(graphs_.keys, GRAPHS, (uintptr_t)executable, &is_new);
  if (place < GRAPHS) STORE(graphs_.nodes[place], nodes);
}

/* 0 where it is not known. */
static uint64_t nodes_of(void* executable) {
  bool is_new = false;
  const size_t place = place_of(graphs_.keys, GRAPHS, (uintptr_t)executable, &is_new);
  return place < GRAPHS ? LOAD(graphs_.nodes[place]) : 0;
}

void derate_count_graph(const derate_driver_calls* driver, void* executable, void* stream) {
  derate_launch_page* const at = page();
  const int gpu = at == NULL ? -1 : row(driver, at);
  if (gpu < 0) return;
  const uint64_t nodes = nodes_of(executable);
  const uint64_t shape[2] = {0x6870617267ULL /* "graph" */, nodes};
  count_one(driver, at, gpu, (Launched){executable, stream, hash_of(shape, sizeof shape), nodes});
}

void derate_count_wait(const derate_driver_calls* driver) {
  derate_launch_page* const at = page();
  const int gpu = at == NULL ? -1 : row(driver, at);
  if (gpu >= 0) ADD(at->gpus[gpu].waits, 1);
}

void derate_count_copy(const derate_driver_calls* driver) {
  derate_launch_page* const at = page();
  const int gpu = at == NULL ? -1 : row(driver, at);
  if (gpu >= 0) ADD(at->gpus[gpu].copies, 1);
}
