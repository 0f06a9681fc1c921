/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up JVM for testjvmwalk.h: one code heap, a stack and some other memory. */
#pragma once

#include "node/runtime/jvm/testjvmwalk.h"

#define CODE_AT	     0x7f1000000000ull
#define CODE_BYTES   0x40000u
#define SEGMENT_BITS 7
#define SEGMAP_AT    0x7f2000000000ull
#define SEGMAP_BYTES (CODE_BYTES >> SEGMENT_BITS)
#define STACK_AT     0x7ffd00000000ull
#define STACK_BYTES  0x10000u
#define DATA_AT	     0x7f3000000000ull /* address of names, Methods and libjvm's code */
#define DATA_BYTES   0x4000u

static struct {
	uint8_t code[CODE_BYTES], segmap[SEGMAP_BYTES], stack[STACK_BYTES], data[DATA_BYTES];
	uint32_t next; /* segment at which the next blob begins */
} vm;

static uint8_t *vm_at(uint64_t address, uint64_t n)
{
	const struct {
		uint64_t start, bytes;
		uint8_t *at;
	} pieces[] = {
		{CODE_AT, CODE_BYTES, vm.code},
		{SEGMAP_AT, SEGMAP_BYTES, vm.segmap},
		{STACK_AT, STACK_BYTES, vm.stack},
		{DATA_AT, DATA_BYTES, vm.data},
	};

	for (size_t k = 0; k < sizeof(pieces) / sizeof(*pieces); k++)
		if (address >= pieces[k].start && n <= pieces[k].bytes &&
		    address - pieces[k].start <= pieces[k].bytes - n)
			return pieces[k].at + (address - pieces[k].start);
	return NULL;
}

static inline bool vm_read(uint64_t address, void *to, size_t n)
{
	const uint8_t *from = vm_at(address, n);

	if (from)
		memcpy(to, from, n);
	return from;
}

/* Makes the JVM's process, with the data d. */
static inline void vm_process(const struct pf_jvm *d)
{
	static const uint64_t code[1][2] = {{CODE_AT, CODE_AT + CODE_BYTES}};

	host_read = vm_read;
	host_process(d, code, 1);
}
