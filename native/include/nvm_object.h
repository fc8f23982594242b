/* Values of the VM. Every value starts with struct nvm_object; a value belongs to one VM and its
 * count is a plain integer. Constants are immortal (NVM_FLAG_IMMORTAL; retain and release leave
 * them alone). Storage blocks alone count atomically, because results and borrowed inputs outlive a
 * run and may be dropped by any thread.
 */
#ifndef NVM_OBJECT_H
#define NVM_OBJECT_H

#include "nvm_device.h"

enum nvm_kind {
  NVM_KIND_TENSOR = 1,
  NVM_KIND_STORAGE = 2,
  NVM_KIND_ADT = 3,
  NVM_KIND_CLOSURE = 4,
  NVM_KIND_REF = 5
};

enum {
  NVM_FLAG_IMMORTAL = 1,
  NVM_FLAG_READONLY = 2, /* storage: borrowed from the caller, not to be written */
  NVM_FLAG_MARK = 4,     /* set and cleared within one collection of ref cycles */
  NVM_FLAG_GROWN = 8,    /* storage: made by an append, so more are to be expected */
  /* storage: an argument of this run that the caller gave away, and gets back if the run fails:
   * appended to, but not written */
  NVM_FLAG_MOVED = 16
};

typedef struct nvm_object {
  uint32_t refcount;
  uint8_t kind; /* enum nvm_kind */
  uint8_t flags;
  uint16_t extra; /* tensor: dtype; adt: unused */
} nvm_object;

/* A block of device memory. No tensor reaches beyond `size`; what lies between it and `capacity` is
 * seen by nobody, so a tensor that ends at `size` may be extended into it whoever else uses the
 * block (docs/adr/0008). */
typedef struct nvm_storage {
  nvm_object header;        /* refcount counts atomically (nvm_storage_retain/release) */
  struct nvm_storage *next; /* while on a free list or on the VM's release list */
  void *memory;
  size_t size, capacity;
  uint16_t device;              /* device index of the program's VM */
  uint16_t size_class;          /* of its pool (alloc.c) */
  struct nvm_pool *pool;        /* where it returns to; NULL: borrowed, see release */
  void (*release)(void *owner); /* borrowed memory: called once when the block dies */
  void *owner;
} nvm_storage;

typedef struct nvm_tensor {
  nvm_object header; /* extra = dtype number */
  uint8_t rank;
  uint16_t device;
  nvm_storage *storage; /* owned reference; NULL for constants (mapped memory) */
  char *data;           /* storage->memory + byte offset */
  size_t bytes;
  int64_t dims[]; /* rank entries */
} nvm_tensor;

typedef struct nvm_adt {
  nvm_object header;
  uint32_t ctor; /* index into the program's constructors; 0 = tuple */
  uint32_t n_fields;
  nvm_object *fields[];
} nvm_adt;

typedef struct nvm_closure {
  nvm_object header;
  uint32_t func;
  uint32_t n_captures;
  nvm_object *captures[];
} nvm_closure;

typedef struct nvm_ref {
  nvm_object header;
  nvm_object *value;
  struct nvm_ref *prev, *next; /* all refs of a VM, for the collection of cycles */
} nvm_ref;

#endif
