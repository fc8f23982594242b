/* Functions that several harnesses run. Each add_* returns the function's index. */
#ifndef NVM_PROGRAMS_H
#define NVM_PROGRAMS_H

#include "harness.h"

/* sum(n, acc) = n == 0 ? acc : sum(n - 1, acc + n), by tail calls */
uint32_t add_tail_sum(void);
/* depth(n) = n == 0 ? 0 : depth(n - 1) + 1 */
uint32_t add_depth(void);
/* The same through a self call that keeps its frame, fib(n) */
uint32_t add_fib(void);
/* build(n, list) = n == 0 ? list : build(n - 1, Cons(box(n), list)) */
uint32_t add_build_list(void);
/* list(n) = length of build(n, Nil) by tail recursion */
uint32_t add_list_length(void);
/* cycles(n): n times a ref that holds a closure that holds the ref; returns 0 */
uint32_t add_cycles(void);
/* The kernel c = a + b of float32 vectors; returns its index. */
uint32_t add_vector_kernel(void);
/* y = x + x by a kernel `times` times in a loop; returns y */
uint32_t add_kernel_loop(void);
/* loop(n): a backward jump n times with one addition; returns n */
uint32_t add_loop(void);

#endif
