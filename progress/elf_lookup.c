#include "elf_lookup.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The loader's list of objects: glibc's name for it, and musl's. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug* _dl_debug_addr __attribute__((weak));

typedef struct {
  const ElfW(Sym) * symbols;
  const char* names;
  const uint32_t* gnu_hash;
  const uint32_t* sysv_hash;
} Table;

/* glibc has put the object's address into these entries, musl and the kernel's own object have left
 * them as in the file. An address in the object is within 2 GiB of its table. */
static const void* place(const struct link_map* object, const ElfW(Dyn) * entry) {
  const ElfW(Addr) at = entry->d_un.d_ptr, table = (ElfW(Addr))object->l_ld;
  const ElfW(Addr) apart = at > table ? at - table : table - at;
  return (const void*)(apart < 0x80000000U ? at : at + object->l_addr);
}

const void* derate_dynamic(const struct link_map* object, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = object->l_ld; entry != NULL && entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == tag) return place(object, entry);
  return NULL;
}

static Table table_of(const struct link_map* object) {
  return (Table){derate_dynamic(object, DT_SYMTAB), derate_dynamic(object, DT_STRTAB),
                 derate_dynamic(object, DT_GNU_HASH), derate_dynamic(object, DT_HASH)};
}

static void* if_named(const struct link_map* object, const Table* table, uint32_t index,
                      const char* name) {
  const ElfW(Sym)* symbol = &table->symbols[index];
  if (symbol->st_shndx == SHN_UNDEF || (symbol->st_info & 0xf) != STT_FUNC) return NULL;
  if (strcmp(table->names + symbol->st_name, name) != 0) return NULL;
  return (void*)(object->l_addr + symbol->st_value);
}

/* GNU's table: buckets of chains; a chain ends with an odd hash.
 * https://flapenguin.me/elf-dt-gnu-hash describes the layout. */
static void* find_gnu(const struct link_map* object, const Table* table, const char* name) {
  const uint32_t bucket_count = table->gnu_hash[0], first = table->gnu_hash[1];
  const uint32_t bloom_words = table->gnu_hash[2];
  const uint32_t* buckets = table->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = buckets + bucket_count;
  uint32_t hash = 5381, index;
  const unsigned char* c;
  for (c = (const unsigned char*)name; *c != '\0'; ++c) hash = hash * 33 + *c;
  if (bucket_count == 0 || buckets[hash % bucket_count] < first) return NULL;
  for (index = buckets[hash % bucket_count];; ++index) {
    const uint32_t found = chain[index - first];
    if ((found | 1) == (hash | 1)) {
      void* const at = if_named(object, table, index, name);
      if (at != NULL) return at;
    }
    if ((found & 1) != 0) return NULL;
  }
}

static void* find_in(const struct link_map* object, const char* name) {
  const Table table = table_of(object);
  uint32_t index;
  if (table.symbols == NULL || table.names == NULL) return NULL;
  if (table.gnu_hash != NULL) return find_gnu(object, &table, name);
  if (table.sysv_hash == NULL) return NULL;
  for (index = 0; index < table.sysv_hash[1]; ++index) {
    void* const at = if_named(object, &table, index, name);
    if (at != NULL) return at;
  }
  return NULL;
}

const struct link_map* derate_first_object(void) {
  if (&_r_debug != NULL) return _r_debug.r_map;
  return &_dl_debug_addr == NULL ? NULL : _dl_debug_addr->r_map;
}

void* derate_next_symbol(const char* name, const void* own) {
  const struct link_map *object, *after = NULL;
  /* Each object that has what we have: ours among them. */
  for (object = derate_first_object(); object != NULL; object = object->l_next)
    if (find_in(object, name) == own) after = object;
  for (object = after == NULL ? derate_first_object() : after->l_next; object != NULL;
       object = object->l_next) {
    void* const at = find_in(object, name);
    if (at != NULL) return at;
  }
  return derate_first_symbol(name);
}

void* derate_first_symbol(const char* name) {
  for (const struct link_map* object = derate_first_object(); object != NULL;
       object = object->l_next) {
    void* const at = find_in(object, name);
    if (at != NULL) return at;
  }
  return NULL;
}
