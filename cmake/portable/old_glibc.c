/* What portable programs would want of glibc 2.35 and later, by what 2.34 has: the linker has every
 * call of X go to __wrap_X. hypot() got a new version without another result, arc4random() and
 * _dl_find_object() came for libstdc++'s random_device and libgcc's unwinder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

double old_hypot(double x, double y);
__asm__(".symver old_hypot, hypot@GLIBC_2.2.5");
double __wrap_hypot(double x, double y);
uint32_t __wrap_arc4random(void);
int __wrap__dl_find_object(void* address, struct dl_find_object* found);

double __wrap_hypot(double x, double y) { return old_hypot(x, y); }

uint32_t __wrap_arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
    /* interrupted by a signal: these few bytes come whole or not at all */
  }
  return number;
}

struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

/* 1, which ends the search, for the object with the address and a table of its frames. */
static int look_at(struct dl_phdr_info* object, size_t size, void* data) {
  const struct search* search = data;
  int has_address = 0;
  const void* frames = NULL;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t at = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = (const void*)at;
    if (part->p_type != PT_LOAD) continue;
    if (at < begin) begin = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
    if (search->address >= at && search->address < at + part->p_memsz) has_address = 1;
  }
  if (!has_address || frames == NULL) return 0;
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_eh_frame = (void*)frames;
  return 1;
}

int __wrap__dl_find_object(void* address, struct dl_find_object* found) {
  struct search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(look_at, &search) == 1 ? 0 : -1;
}
