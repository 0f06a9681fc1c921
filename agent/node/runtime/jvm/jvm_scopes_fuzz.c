/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names frames of a JVM whose memory is any bytes (then all addresses point into them), or a valid
 * memory with some bytes changed. Every frame must get clean names within the limits, or an error.
 * Fuzzes: node/runtime/jvm/jvm_scopes.c, node/runtime/jvm/jvm_method.c,
 * node/runtime/jvm/jvm_names.c
 */
#include <stdlib.h>

#include "node/runtime/jvm/testjvmimage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct bytes {
	const uint8_t *data;
	size_t n;
};

static int read_bytes(void *arg, uint64_t address, void *to, size_t n)
{
	const struct bytes *b = arg;

	for (size_t i = 0; i < n; i++)
		((uint8_t *)to)[i] = b->data[(address + i) % b->n];
	return address % 61 ? 0 : -EFAULT;
}

static void check(const struct runtime_names *names)
{
	if (names->n > RUNTIME_NAMES_MAX)
		abort();
	for (size_t i = 0; i < names->n; i++) {
		const struct runtime_name *x = &names->items[i];
		_cleanup_free_ char *clean = elf_text_clean(x->name);

		if (!streq(clean, x->name) || x->inlined != (i > 0) || x->line > UINT16_MAX)
			abort();
	}
}

/* Adds the compile id of the method at that address to the words, as the kernel's part does. */
static void set_compile_id(const struct jvm *jvm, struct memory *m, struct runtime_words *w)
{
	uint32_t id = 0;

	(void)runtime_memory_u32(m, JVM_ADDRESS(w->a) + jvm->structs.nmethod_compile_id, &id);
	w->a = JVM_ADDRESS(w->a) | (uint64_t)(id & 0xffff) << 48;
	w->b = JVM_ADDRESS(w->b) | (uint64_t)(id >> 16) << 48;
}

static void name(struct jvm *jvm, struct memory *m, const struct runtime_words *w)
{
	struct runtime_names names = {0};

	if (runtime_jvm_names(jvm, m, w, &names) == 0)
		check(&names);
	runtime_names_done(&names);
}

/* Names frames of a process in which all memory, and the words of the frames, are these bytes. */
static void any_bytes(unsigned major, const uint8_t *data, size_t n)
{
	struct bytes b = {data, n};
	struct memory m = {.read = read_bytes, .arg = &b, .budget_bytes = MEMORY_BUDGET};
	struct jvm jvm = {.major = major};

	image_structs(major, &jvm.structs);
	for (size_t i = 0; i + 16 <= n && i < 64; i += 16)
		for (uint8_t type = 0; type <= JVM_FRAME_INTERRUPTED; type++) {
			struct runtime_words w = {.type = type};

			memcpy(&w.a, data + i, sizeof(w.a));
			memcpy(&w.b, data + i + 8, sizeof(w.b));
			if (type == JVM_FRAME_COMPILED || type == JVM_FRAME_INTERRUPTED)
				set_compile_id(&jvm, &m, &w);
			name(&jvm, &m, &w);
		}
	runtime_jvm_names_forget(&jvm);
}

/*
 * Names frames of a method with an inlined one, in which some bytes are changed. For each change,
 * two bytes of data are the place, and a third one is the new value.
 */
static void damaged(unsigned major, const uint8_t *data, size_t n)
{
	static const uint8_t lines[] = {7, 33, 0xff, 20, 40, 0};
	static struct image i;
	struct image_debug d = {.n_pcs = 2, .n_methods = 2};
	struct image_method method[2];
	uint64_t code, nm;

	image_init(&i, major);
	for (size_t k = 0; k < 2; k++) {
		method[k] = image_method(&i, "a/B$$Lambda$1", "c", "B.java", lines, sizeof(lines));
		d.methods[k] = method[k].method;
	}
	d.pcs[0] = (struct jvm_pc){.pc = 8};
	d.pcs[0].scope = (int32_t)image_scope(&d, 0, 1, 4, major >= 20);
	d.pcs[1] = (struct jvm_pc){.pc = 16};
	d.pcs[1].scope = (int32_t)image_scope(&d, (uint32_t)d.pcs[0].scope, 2, 0, major >= 20);
	nm = image_nmethod(&i, method[0].method, 7, &d, &code);
	i.memory.budget_bytes = MEMORY_BUDGET;
	for (; n >= 3; data += 3, n -= 3)
		i.bytes[(data[0] | (uint32_t)data[1] << 8) % i.used] = data[2];
	for (uint64_t pc = 0; pc < 24; pc += 8) {
		struct runtime_words w = {JVM_FRAME_COMPILED, nm, code + pc};

		set_compile_id(&i.jvm, &i.memory, &w);
		name(&i.jvm, &i.memory, &w);
		w.type = JVM_FRAME_INTERRUPTED;
		name(&i.jvm, &i.memory, &w);
	}
	name(&i.jvm, &i.memory,
	     &(struct runtime_words){JVM_FRAME_INTERPRETED, method[1].method,
				     method[1].const_method});
	runtime_jvm_names_forget(&i.jvm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const unsigned majors[] = {8, 11, 17, 25, 8, 11, 17, 24};
	unsigned major;

	if (n < 2)
		return 0;
	major = majors[(data[0] & 3) | (data[0] >> 1 & 4)];
	(data[0] & 4 ? any_bytes : damaged)(major, data + 1, n - 1);
	return 0;
}
