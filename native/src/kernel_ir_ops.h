/* Row operations of the loop-IR interpreter: one function an operation and lane type, over n lanes.
 *
 * Lanes hold a dtype as itself, but float16 as float (rounded to float16 after each operation, by
 * the caller) and bool as a byte that is 0 or 1. A value that is the same for all lanes has step 0.
 */
#ifndef NVM_KERNEL_IR_OPS_H
#define NVM_KERNEL_IR_OPS_H

#include "nvm_kernel.h"

typedef struct nvm_ir_row {
  void *out; /* n lanes, overlaps no input */
  const void *in[3];
  uint32_t step[3]; /* 0 or 1 */
  int64_t n;        /* >= 1 */
} nvm_ir_row;

/* Returns 0, or 1 for an integer division by zero (then `out` is undefined). */
typedef int (*nvm_ir_op)(const nvm_ir_row *row);
/* Fold n lanes (step 0 or 1) into the value at `cell`. */
typedef void (*nvm_ir_fold)(void *cell, const void *in, uint32_t step, int64_t n);

/* The function of an operation on a dtype, NULL if there is none. Numbers may be any. */
nvm_ir_op nvm_ir_unary(uint8_t op, uint8_t dtype);
nvm_ir_op nvm_ir_binary(uint8_t op, uint8_t dtype);
nvm_ir_op nvm_ir_compare(uint8_t op, uint8_t dtype);
nvm_ir_op nvm_ir_select(uint8_t dtype);
nvm_ir_op nvm_ir_cast(uint8_t to, uint8_t from);
nvm_ir_fold nvm_ir_fold_of(uint8_t op, uint8_t dtype);

/* Bytes of a lane. */
uint32_t nvm_ir_lane_size(uint8_t dtype);
/* Elements at src, src + step, ... (step in elements) to n lanes, and back. */
void nvm_ir_read(void *lanes, const void *src, int64_t step, int64_t n, uint8_t dtype);
void nvm_ir_write(void *dst, int64_t step, const void *lanes, uint32_t lane_step, int64_t n,
                  uint8_t dtype);
/* The same with an element offset a lane. */
void nvm_ir_gather(void *lanes, const void *src, const int64_t *offsets, int64_t n, uint8_t dtype);
void nvm_ir_scatter(void *dst, const int64_t *offsets, const void *lanes, uint32_t lane_step,
                    int64_t n, uint8_t dtype);
/* Round float lanes to float16 values, to nearest even. */
void nvm_ir_round_half(float *lanes, int64_t n);

float nvm_half_to_float(uint16_t half);
uint16_t nvm_half_from_float(float x);
/* double to float so that a following rounding to float16 is right (round to odd). */
float nvm_half_prepare(double x);

#endif
