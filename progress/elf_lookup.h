/* Symbols of the objects that are loaded, found without the dynamic loader's own calls: one of
 * those is what this library stands before. */
#pragma once

#include <link.h>

/* The function of that name in the first object, in the loader's order, that comes after the one
 * which `own` lies in; else in the first of all others. NULL: nowhere. */
void* derate_next_symbol(const char* name, const void* own);
/* The function of that name in the first object that has one. */
void* derate_first_symbol(const char* name);
/* The objects, in the order in which they were loaded. Of a program with threads it may change. */
const struct link_map* derate_first_object(void);
/* What an object's dynamic section has an address of; NULL: it has none. */
const void* derate_dynamic(const struct link_map* object, ElfW(Sxword) tag);
