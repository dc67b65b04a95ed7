#define _GNU_SOURCE
#include "count.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hand_over.h"
#include "wire/launch_page.h"

/* Of made-up programs of 80 kernels, 8 probes lose a kernel in 61 %, 32 in 0.2 %, 64 in none; of
 * 100 kernels 32 in 14 %, 64 in 0.1 % (3000 of each). A launch costs what it did: a kernel that is
 * met again is found after 1.8 probes on average, of 80. */
#define MOST_PROBES 64
#define ANNOUNCE_EVERY 1024 /* launches of a thread, between two looks at the clock */

/* Graphs that can be launched at a time, of which the nodes are known: a server makes one for each
 * size of its batches and each part of its model, some 2,000 to 5,000. */
#define GRAPHS 8192

enum { KERNELS = DERATE_LAUNCH_KERNELS - 1, STREAMS = DERATE_LAUNCH_STREAMS - 1 };

/* What a row and the kernels and streams in it are found by, which no other process needs.
 * `owner`: of the thread that writes it, the address of its place; NULL: all threads do. */
typedef struct {
  int device;
  const void* owner;
  uintptr_t kernels[KERNELS];
  uintptr_t streams[STREAMS];
} Keys;

/* Of graphs that can be launched, how many nodes each has. A key is an executable's handle, 0 where
 * there was never one, or DESTROYED. */
typedef struct {
  uintptr_t keys[GRAPHS];
  uint64_t nodes[GRAPHS];
} Graphs;
#define DESTROYED ((uintptr_t)1)

enum { UNBEGUN, BEGINNING, COUNTING, OFF };

/* The state, alone on a page that the kernel wipes in a child of fork(), which so finds that it has
 * not begun, whatever its parent was about. It stays where it is for good. */
static int* state_;
/* Such a page cannot be had (gVisor and old kernels do not know MADV_WIPEONFORK). Nothing is
 * counted then, in this process and its children: a child that counts on its parent's page would
 * count for its parent, and to compare process numbers at each launch costs a system call. */
static int never_;
static derate_launch_page* page_;
static Keys keys_[DERATE_LAUNCH_ROWS];
static Graphs graphs_;
static unsigned pages_; /* that this process has begun */
static int captures_;   /* of streams into graphs, that are going on */

/* Where a thread has counted last, and on which page. A thread that begins where another has ended
 * finds that one's rows by its place's address, and goes on with them. */
typedef struct {
  unsigned page, launches;
  int device, row;
} Place;
static __thread Place place_ __attribute__((tls_model("initial-exec")));

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)

static void add(uint64_t* place, uint64_t amount, bool is_own) {
  if (is_own)
    __atomic_store_n(place, *place + amount, __ATOMIC_RELAXED);
  else
    (void)__atomic_fetch_add(place, amount, __ATOMIC_RELAXED);
}

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

static int* make_state(void) {
  int* made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int* before = NULL;
  const bool is_mapped = made != MAP_FAILED;
  if (is_mapped && madvise(made, 4096, MADV_WIPEONFORK) == 0) {
    if (__atomic_compare_exchange_n(&state_, &before, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return made;
  } else {
    STORE(never_, 1);
  }
  if (is_mapped) munmap(made, 4096);
  return before;
}

static bool begin(void) {
  derate_launch_page* page;
  if (derate_is_switched_off()) return false;
  /* Of a child: its parent's page stays mapped, as another thread may still be looking at it. */
  page = derate_make_page(sizeof *page);
  if (page == NULL) return false;
  memset(keys_, 0, sizeof keys_);
  page->size = sizeof *page;
  page->rows = DERATE_LAUNCH_ROWS;
  page->pid = getpid();
  memcpy(page->magic, DERATE_LAUNCH_MAGIC, sizeof page->magic);
  ++pages_;
  STORE(page_, page);
  derate_announce_page();
  return true;
}

/* NULL: nothing is counted, or another thread is about to begin. */
static derate_launch_page* page(void) {
  int* state = LOAD(state_);
  if (__builtin_expect(state != NULL && LOAD(*state) == COUNTING, 1)) return page_;
  if (state == NULL) state = LOAD(never_) ? NULL : make_state();
  if (state == NULL) return NULL;
  if (swap_int(state, UNBEGUN, BEGINNING)) STORE(*state, begin() ? COUNTING : OFF);
  return LOAD(*state) == COUNTING ? page_ : NULL;
}

void derate_begin_counting(void) { (void)page(); }

/* --- rows ------------------------------------------------------------------------------------- */

/* That device's row of that owner, from one row to before another; -1: there is none left, or one
 * is being filled and counts in a moment. */
static int find_row(const derate_driver_calls* driver, derate_launch_page* at, int device,
                    const void* owner, int from, int to) {
  for (int i = from; i < to; ++i) {
    derate_launch_row* const row = &at->rows_of[i];
    uint64_t used = LOAD(row->used);
    if (used == DERATE_ROW_COUNTS && keys_[i].device == device && keys_[i].owner == owner) return i;
    if (used == DERATE_ROW_FILLED && owner == NULL) return -1;
    if (used != DERATE_ROW_FREE) continue;
    if (!__atomic_compare_exchange_n(&row->used, &used, DERATE_ROW_FILLED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
      --i; /* somebody has just taken it: look again whose it is */
      continue;
    }
    keys_[i].device = device;
    keys_[i].owner = owner;
    if (driver->uuid_of_device != NULL) driver->uuid_of_device(row->uuid, device);
    STORE(row->used, DERATE_ROW_COUNTS);
    return i;
  }
  return -1;
}

typedef struct {
  derate_launch_row* counts; /* NULL: what is asked for is not counted */
  Keys* keys;
  bool is_own;
} Row;

/* Where this thread counts what it does on the current context's device. */
static Row row(const derate_driver_calls* driver) {
  derate_launch_page* const at = page();
  int device = 0;
  if (at == NULL || driver->device_of_context == NULL || driver->device_of_context(&device) != 0)
    return (Row){NULL, NULL, false};
  if (__builtin_expect(place_.page != pages_ || place_.device != device, 0)) {
    int found = find_row(driver, at, device, &place_, DERATE_LAUNCH_SHARED, DERATE_LAUNCH_ROWS);
    if (found < 0) found = find_row(driver, at, device, NULL, 0, DERATE_LAUNCH_SHARED);
    if (found < 0) return (Row){NULL, NULL, false};
    place_ = (Place){pages_, place_.launches, device, found};
  }
  return (Row){&at->rows_of[place_.row], &keys_[place_.row], place_.row >= DERATE_LAUNCH_SHARED};
}

/* Where a handle is or comes to be in a table of `size` keys; `size` itself: there is no room.
 * `*is_new` where nobody has met it before. */
static size_t place_of(uintptr_t* keys, size_t size, uintptr_t handle, bool* is_new) {
  size_t i =
      (size_t)((scattered(handle) & 0xffffffffU) * size >> 32); /* a division would be dear */
  const size_t probes = size < MOST_PROBES ? size : MOST_PROBES;
  for (size_t probe = 0; probe < probes; ++probe, i = i + 1 == size ? 0 : i + 1) {
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

/* NCCL's and RCCL's kernels, NVSHMEM's, MSCCL's, those of PyTorch's symmetric memory and of vLLM.
 */
static bool names_a_collective(const char* name) {
  static const char* const kParts[] = {"nccl", "nvshmem", "msccl", "shot_all_reduce",
                                       "cross_device_reduce"};
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i)
    if (strstr(name, kParts[i]) != NULL) return true;
  return false;
}

/* Its name; NULL where the driver tells none. */
static const char* name_of(const derate_driver_calls* driver, void* function) {
  const char* name = NULL;
  if (driver->name_of_function == NULL || driver->name_of_function(&name, function) != 0)
    name = NULL;
  if (name == NULL && driver->name_of_kernel != NULL &&
      driver->name_of_kernel(&name, function) != 0)
    name = NULL;
  return name;
}

static void begin_kernel(const derate_driver_calls* driver, void* function,
                         derate_launch_kernel* kernel, bool is_own) {
  const char* const name = name_of(driver, function);
  STORE(kernel->id, name != NULL ? hash_of(name, strlen(name)) : scattered((uintptr_t)function));
  if (name != NULL && names_a_collective(name))
    add(&kernel->blocks, DERATE_LAUNCH_COLLECTIVE, is_own);
}

static void count_stream(const Row* row, void* stream) {
  const uintptr_t handle = (uintptr_t)stream + 1; /* the default stream is 0 */
  bool is_new = false;
  const size_t place = place_of(row->keys->streams, STREAMS, handle, &is_new);
  derate_launch_stream* const counts = &row->counts->streams[place];
  if (is_new) STORE(counts->id, scattered(handle));
  add(&counts->launches, 1, row->is_own);
}

static void announce_now_and_then(void) {
  if (++place_.launches % ANNOUNCE_EVERY != 0) return;
  derate_announce_page_again();
}

/* `id`: 0 for a kernel's, which its name makes. */
typedef struct {
  void *handle, *stream;
  uint64_t id, blocks;
} Launched;

static void count_one(const derate_driver_calls* driver, Launched what) {
  const Row at = row(driver);
  if (at.counts == NULL) return;
  bool is_new = false;
  const size_t place = place_of(at.keys->kernels, KERNELS, (uintptr_t)what.handle, &is_new);
  derate_launch_kernel* const kernel = &at.counts->kernels[place];
  if (is_new && what.id != 0) STORE(kernel->id, what.id);
  if (is_new && what.id == 0) begin_kernel(driver, what.handle, kernel, at.is_own);
  add(&kernel->launches, 1, at.is_own);
  add(&kernel->blocks, what.blocks, at.is_own);
  count_stream(&at, what.stream);
  announce_now_and_then();
}

void derate_note_capture(bool begins) {
  int now = __atomic_load_n(&captures_, __ATOMIC_RELAXED);
  do
    if (!begins && now == 0) return; /* it began before this library counted */
  while (!__atomic_compare_exchange_n(&captures_, &now, now + (begins ? 1 : -1), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* Whether what is launched there only becomes a graph's node. The driver is asked only while a
 * capture is going on: a launch costs nothing more otherwise. */
static bool is_captured(const derate_driver_calls* driver, void* stream) {
  int state = 0;
  if (__builtin_expect(__atomic_load_n(&captures_, __ATOMIC_RELAXED) == 0, 1)) return false;
  return stream != NULL && driver->capture_of_stream != NULL &&
         driver->capture_of_stream(stream, &state) == 0 && state != 0;
}

static void count_work(const derate_driver_calls* driver, Launched what) {
  if (!is_captured(driver, what.stream)) count_one(driver, what);
}

void derate_count_launch(const derate_driver_calls* driver, void* function, void* stream,
                         uint64_t blocks) {
  count_work(driver, (Launched){function, stream, 0, blocks});
}

/* The place of an executable; GRAPHS: it has none. `*free_at`: where it could have one. */
static size_t place_of_graph(uintptr_t executable, size_t* free_at) {
  size_t i = (size_t)(scattered(executable) % GRAPHS);
  for (size_t probe = 0; probe < MOST_PROBES; ++probe, i = (i + 1) % GRAPHS) {
    const uintptr_t found = LOAD(graphs_.keys[i]);
    if (found == executable) return i;
    if (found <= DESTROYED && *free_at == GRAPHS) *free_at = i;
    if (found == 0) break;
  }
  return GRAPHS;
}

void derate_note_graph(const derate_driver_calls* driver, void* executable, void* graph) {
  size_t nodes = 0;
  if (driver->nodes_of_graph == NULL || driver->nodes_of_graph(graph, NULL, &nodes) != 0) return;
  for (;;) {
    size_t free_at = GRAPHS;
    const size_t place = place_of_graph((uintptr_t)executable, &free_at);
    if (place < GRAPHS) return STORE(graphs_.nodes[place], nodes);
    if (free_at == GRAPHS) return; /* no room: its nodes are not known */
    uintptr_t found = LOAD(graphs_.keys[free_at]);
    if (found <= DESTROYED)
      __atomic_compare_exchange_n(&graphs_.keys[free_at], &found, (uintptr_t)executable, false,
                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  } /* now it has a place, or another thread has taken that */
}

void derate_forget_graph(void* executable) {
  size_t free_at = GRAPHS;
  const size_t place = place_of_graph((uintptr_t)executable, &free_at);
  if (place < GRAPHS) STORE(graphs_.keys[place], DESTROYED);
}

/* A graph's row is that of its number of nodes, as its id is: of thousands of executables few
 * differ in it. No function has such an address. */
void derate_count_graph(const derate_driver_calls* driver, void* executable, void* stream) {
  size_t free_at = GRAPHS;
  const size_t place = place_of_graph((uintptr_t)executable, &free_at);
  const uint64_t nodes = place < GRAPHS ? LOAD(graphs_.nodes[place]) : 0;
  const uint64_t shape[2] = {0x6870617267ULL /* "graph" */, nodes};
  count_work(driver,
             (Launched){(void*)~(uintptr_t)nodes, stream, hash_of(shape, sizeof shape), nodes});
}

void derate_count_wait(const derate_driver_calls* driver) {
  const Row at = row(driver);
  if (at.counts != NULL) add(&at.counts->waits, 1, at.is_own);
}

void derate_count_copy(const derate_driver_calls* driver, void* stream) {
  if (is_captured(driver, stream)) return;
  const Row at = row(driver);
  if (at.counts != NULL) add(&at.counts->copies, 1, at.is_own);
}

void derate_count_memory(const derate_driver_calls* driver, derate_memory_work work, void* stream,
                         uint64_t bytes) {
  static char handles[][8] = {"copy", "memset"}; /* as a kernel's: no two things have one address */
  char* const handle = handles[work];
  count_work(driver, (Launched){handle, stream, hash_of(handle, strlen(handle) + 1), bytes});
}
