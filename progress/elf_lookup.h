/* Symbols of the objects that are loaded, found without the dynamic loader's own calls: one of
 * those is what this library stands before. */
#pragma once

/* The function of that name in the first object, in the loader's order, that comes after the one
 * which `own` lies in; else in the first of all others. NULL: nowhere. */
void* derate_next_symbol(const char* name, const void* own);
