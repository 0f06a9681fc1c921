// SPDX-License-Identifier: Apache-2.0
/*
 * bpf/unwind.h over tables, memory and registers that are anything: it must stay inside of all of
 * them, and end. The first bytes are shape, the rest fills chunks, code and stack in turn.
 * Fuzzes: bpf/unwind.h, bpf/walk.h, bpf/tables.h, bpf/rules.h
 */
#include "node/probe/unwind_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct input {
	const uint8_t *data;
	size_t n;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	if (bytes > in->n)
		bytes = in->n;
	memcpy(&v, in->data, bytes);
	in->data += bytes;
	in->n -= bytes;
	return v;
}

/* An address: of the stack, of the code, or anything. */
static uint64_t take_address(struct input *in)
{
	uint8_t kind = take(in, 1);

	if (kind < 120)
		return STACK_BASE + take(in, 1) * 8;
	if (kind < 240)
		return CODE_BASE + take(in, 2);
	return take(in, 8);
}

static uint8_t *fill(struct input *in, size_t n, size_t size)
{
	uint8_t *bytes = calloc(1, size);

	if (!bytes)
		abort();
	if (n > in->n)
		n = in->n;
	if (n > size)
		n = size;
	memcpy(bytes, in->data, n);
	in->data += n;
	in->n -= n;
	return bytes;
}

/* References stay near the chunks' beginning most of the time, where the input's bytes are. */
static uint32_t take_ref(struct input *in)
{
	uint8_t kind = take(in, 1);

	if (kind == 255)
		return take(in, 4);
	return PF_REF(kind % IMAGE_CHUNKS, kind & 128 ? take(in, 2) & ~3u : take(in, 1) * 4);
}

static void take_tables(struct input *in, struct pf_walk *w)
{
	for (size_t i = 0; i < 4; i++) {
		image.files[i] = (struct pf_file){
			.state = take(in, 1) % 8 ? PF_FILE_READY : take(in, 1),
			.first_page = take(in, 1) % 4,
			.n_pages = take(in, 2),
			.pages = take_ref(in),
			.rules = take_ref(in),
			.n_rules = take(in, 2),
		};
	}
	w->known = take(in, 1) % 8;
	w->process = (struct pf_process){.n_parts = take(in, 1)};
	for (size_t i = 0; i < PF_PARTS_MAX; i++)
		w->process.parts[i] = (struct pf_part){take_address(in), take_ref(in), take(in, 2)};
}

/* A mapping and a page that can be met, for most inputs. */
static void put_likely(struct input *in, struct pf_walk *w)
{
	struct pf_mapping m = {CODE_BASE, CODE_BASE + take(in, 2), CODE_BASE, take(in, 1) % 5, 0};
	struct pf_page page = {PF_REF(1, 0), take(in, 2)};

	memcpy(image.chunks[3], &m, sizeof(m));
	memcpy(image.chunks[0], &page, sizeof(page));
	w->process.parts[0] = (struct pf_part){CODE_BASE, PF_REF(3, 0), 1};
	for (size_t i = 0; i < 4; i++) {
		image.files[i].first_page = 0;
		image.files[i].pages = PF_REF(0, 0);
		image.files[i].rules = PF_REF(2, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct pf_scratch scratch;
	struct input in = {data, n};
	struct pf_walk *w = &scratch.walk;
	uint8_t shape = take(&in, 1);

	/* Sizes of their own: whatever is read past an end is seen by the sanitizer. */
	memset(&scratch, shape, sizeof(scratch));
	take_tables(&in, w);
	w->ip = take_address(&in);
	for (size_t i = 0; i < PF_REGS; i++)
		w->regs[i] = take_address(&in);
	image.n_code = 512;
	image.code = fill(&in, 128, image.n_code);
	image.n_stack = 4096; /* a page */
	image.stack = fill(&in, 1024, image.n_stack);
	for (size_t i = 0; i < IMAGE_CHUNKS; i++)
		image.chunks[i] = fill(&in, 256, PF_CHUNK_BYTES);
	if (shape & 1)
		put_likely(&in, w);
	image.reads = 0;
	pf_walk_user(&scratch, 1, 1, shape & 2, false);
	if (w->n_frames < 1 || w->n_frames > PF_MAX_USER_FRAMES || w->end >= _PF_END_MAX ||
	    w->n_words != 2 * w->n_frames + w->n_runtime || w->window_bytes > PF_WINDOW_BYTES ||
	    image.reads > 5 * PF_MAX_USER_FRAMES)
		abort();
	free(image.code);
	free(image.stack);
	for (size_t i = 0; i < IMAGE_CHUNKS; i++)
		free(image.chunks[i]);
	return 0;
}
