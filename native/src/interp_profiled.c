/* The interpreter again, with the time of each instruction: VMs that ask for it run this copy, so
 * that the other one has no trace of it. */
#define NVM_PROFILED 1
#include "interp.c"
