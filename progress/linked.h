/* Functions of the driver that an object is linked with: its calls go by way of addresses that the
 * loader has put into it, and ours are put in their place. No symbol need be shown for that, which
 * would be one for programs that have a variable of its name, too. */
#pragma once

/* What is to be called in place of `found`, which the loader has bound that name to; NULL: that. */
typedef void* derate_in_place(const char* name, void* found);

/* Whether that handle's object is linked with libcuda.so.1. */
int derate_is_linked_with_driver(void* handle);
/* In such an object; what it calls for the first time after this (lazy binding) is left as it is.
 */
void derate_take_linked(void* handle, derate_in_place* in_place);
/* In all objects that are loaded as the program begins, before there are other threads. `begun`
 * is called before the first is changed. */
void derate_take_linked_at_start(derate_in_place* in_place, void (*begun)(void));
