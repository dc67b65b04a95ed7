#define _GNU_SOURCE
#include "linked.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "elf_lookup.h"

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT };
#else
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT };
#endif

/* Of the C library, where there is one that has them. */
extern __typeof__(dlinfo) dlinfo __attribute__((weak));
extern __typeof__(dl_iterate_phdr) dl_iterate_phdr __attribute__((weak));

typedef struct {
  uintptr_t begin, end;
} Range;
static bool has(Range range, uintptr_t at) { return at >= range.begin && at < range.end; }

typedef struct {
  const struct link_map* object;
  derate_in_place* in_place;
  bool at_start;
  Range program; /* the executable */
  int looked_at;
} Search;

static bool is_linked(const struct link_map* object) {
  const char* const names = derate_dynamic(object, DT_STRTAB);
  const ElfW(Dyn)* entry = object->l_ld;
  if (names == NULL) return false;
  for (; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_NEEDED && strcmp(names + entry->d_un.d_val, "libcuda.so.1") == 0)
      return true;
  return false;
}

static size_t size_of(const struct link_map* object, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = object->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == tag) return entry->d_un.d_val;
  return 0;
}

static Range loaded(const struct dl_phdr_info* info) {
  Range out = {UINTPTR_MAX, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD) continue;
    if (begin < out.begin) out.begin = begin;
    if (begin + part->p_memsz > out.end) out.end = begin + part->p_memsz;
  }
  return out;
}

static bool is_read_only(const struct dl_phdr_info* info, uintptr_t at) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_RELRO && has((Range){begin, begin + part->p_memsz}, at)) return true;
  }
  return false;
}

static void put(const struct dl_phdr_info* info, void** slot, void* value) {
  static const uintptr_t kPageSizes[] = {4096, 16384, 65536};
  void* page = NULL;
  if (is_read_only(info, (uintptr_t)slot)) {
    size_t i = 0;
    for (; i < 3; ++i) {
      page = (void*)((uintptr_t)slot & ~(kPageSizes[i] - 1));
      if (mprotect(page, kPageSizes[i], PROT_READ | PROT_WRITE) == 0) break;
    }
    if (i == 3) return;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    (void)mprotect(page, kPageSizes[i], PROT_READ);
    return;
  }
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

/* What the slot leads to; NULL: not yet known, or not to be known for sure. */
static void* bound(const Search* search, Range own, const char* name, void* value) {
  if (has(own, (uintptr_t)value)) /* lazy: at the start the first object that has it is taken */
    return search->at_start ? derate_first_symbol(name) : NULL;
  /* An executable's own call of it, which other objects are bound to where it is not relocatable:
   * to take that for the driver's would be a circle. */
  return has(search->program, (uintptr_t)value) ? NULL : value;
}

static void take_in(const Search* search, const struct dl_phdr_info* info, ElfW(Sxword) table,
                    ElfW(Sxword) size_tag) {
  const struct link_map* const object = search->object;
  const ElfW(Rela)* entry = derate_dynamic(object, table);
  const ElfW(Sym)* const symbols = derate_dynamic(object, DT_SYMTAB);
  const char* const names = derate_dynamic(object, DT_STRTAB);
  size_t left = size_of(object, size_tag) / sizeof *entry;
  if (entry == NULL || symbols == NULL || names == NULL) return;
  for (; left > 0; --left, ++entry) {
    const ElfW(Sym)* const symbol = &symbols[ELF64_R_SYM(entry->r_info)];
    const unsigned type = (unsigned)ELF64_R_TYPE(entry->r_info);
    const char* const name = names + symbol->st_name;
    if ((type != JUMP_SLOT && type != GLOB_DAT) || symbol->st_shndx != SHN_UNDEF) continue;
    if ((symbol->st_info & 0xf) != STT_FUNC || name[0] != 'c' || name[1] != 'u') continue;
    void** const slot = (void**)(object->l_addr + entry->r_offset);
    void* const found = bound(search, loaded(info), name, *slot);
    void* const counting = found == NULL ? NULL : search->in_place(name, found);
    if (counting != NULL && counting != *slot) put(info, slot, counting);
  }
}

/* The loader's list does not change while it calls this, and one thread at a time is here. */
static int look(struct dl_phdr_info* info, size_t size, void* data) {
  Search* const search = data;
  const Range range = loaded(info);
  (void)size;
  if (search->looked_at++ == 0) search->program = range;
  if (info->dlpi_addr != search->object->l_addr || !has(range, (uintptr_t)search->object->l_ld))
    return 0;
  take_in(search, info, DT_JMPREL, DT_PLTRELSZ);
  take_in(search, info, DT_RELA, DT_RELASZ);
  return 1;
}

static const struct link_map* object_of(void* handle) {
  struct link_map* out = NULL;
  return &dlinfo != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &out) == 0 ? out : NULL;
}

int derate_is_linked_with_driver(void* handle) {
  const struct link_map* const object = object_of(handle);
  return object != NULL && is_linked(object);
}

static void take(Search search) {
  if (&dl_iterate_phdr != NULL) (void)dl_iterate_phdr(look, &search);
}

void derate_take_linked(void* handle, derate_in_place* in_place) {
  take((Search){.object = object_of(handle), .in_place = in_place});
}

void derate_take_linked_at_start(derate_in_place* in_place, void (*begun)(void)) {
  for (const struct link_map* object = derate_first_object(); object != NULL;
       object = object->l_next) {
    if (object->l_ld == NULL || !is_linked(object)) continue;
    begun();
    take((Search){.object = object, .in_place = in_place, .at_start = true});
  }
}
