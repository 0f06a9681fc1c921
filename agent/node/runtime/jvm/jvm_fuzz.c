// SPDX-License-Identifier: Apache-2.0
/*
 * Walks over HotSpot's frames, with any bytes as code cache, stack and registers. The walk must
 * never read outside of them, and must end. The first bytes of the input are the process's data;
 * then come pieces of memory. Fuzzes: bpf/jvm.h, bpf/jvm_code.h
 */
#include <stdlib.h>

#include "node/runtime/jvm/testjvmprocess.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct input {
	const uint8_t *data;
	size_t n;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	bytes = bytes < in->n ? bytes : in->n;
	memcpy(&v, in->data, bytes);
	in->data += bytes;
	in->n -= bytes;
	return v;
}

/* Returns an address: in the code cache, in the stack, in other memory, or anywhere. */
static uint64_t take_address(struct input *in)
{
	uint8_t kind = take(in, 1);

	if (kind < 120)
		return CODE_AT + take(in, 2);
	if (kind < 200)
		return STACK_AT + take(in, 1) * 8;
	if (kind < 240)
		return DATA_AT + take(in, 1) * 8;
	return take(in, 8);
}

/* Returns an offset in a header. Most values are possible offsets. */
static uint16_t take_offset(struct input *in)
{
	uint8_t kind = take(in, 1);

	return kind == 255 ? take(in, 2) : kind == 254 ? PF_JVM_NONE : kind / 2 * 2;
}

static struct pf_jvm take_layout(struct input *in)
{
	struct pf_jvm d = {.low = CODE_AT, .high = CODE_AT + CODE_BYTES};
	uint16_t *offsets = &d.block_bytes;

	d.heaps[0] =
		(struct pf_jvm_heap){CODE_AT, CODE_AT + CODE_BYTES, SEGMAP_AT, SEGMENT_BITS, 0};
	if (take(in, 1) == 0)
		for (size_t k = 0; k < PF_JVM_HEAPS; k++)
			d.heaps[k] = (struct pf_jvm_heap){take_address(in), take_address(in),
							  take_address(in), take(in, 1), 0};
	d.interpreter = CODE_AT + take(in, 2);
	d.interpreter_end = d.interpreter + take(in, 1) * 16;
	d.entries = d.interpreter + take(in, 1);
	d.entries_end = d.entries + take(in, 1);
	d.call_stub = take_address(in);
	for (size_t k = 0; k < (sizeof(d) - offsetof(struct pf_jvm, block_bytes)) / 2; k++)
		offsets[k] = take_offset(in);
	return d;
}

/* Reads pieces of memory: {address, n, n bytes}. */
static void take_memory(struct input *in)
{
	while (in->n > 4) {
		uint64_t at = take_address(in);
		size_t bytes = take(in, 1) % 64;
		uint8_t *to = vm_at(at, bytes);

		if (bytes > in->n)
			bytes = in->n;
		if (to)
			memcpy(to, in->data, bytes);
		in->data += bytes;
		in->n -= bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct input in = {data, n};
	struct pf_jvm d = take_layout(&in);
	uint64_t ip = take_address(&in), sp = take_address(&in), bp = take_address(&in);

	memset(&vm, 0, sizeof(vm));
	vm_process(&d);
	for (size_t k = 0; k < PF_REGS; k++)
		host.walk.regs[k] = take_address(&in);
	for (size_t k = 0; k < SEGMAP_BYTES; k++)
		vm.segmap[k] = k % 16;
	take_memory(&in);
	host_walk(ip, sp, bp);
	if (host.walk.n_frames > PF_MAX_USER_FRAMES || host_reads > 100 * (PF_MAX_USER_FRAMES + 1))
		abort();
	return 0;
}
