// SPDX-License-Identifier: Apache-2.0
/*
 * bpf/unwind.h over any tables, memory and registers: it must never read outside of them, and must
 * end. The first bytes of the input give sizes, and the rest fills chunks, code and stack. Most
 * inputs, however, choose rows and rules, from which tables are made as the agent makes them.
 * Fuzzes: bpf/unwind.h, bpf/walk.h, bpf/unwind_tables.h, bpf/unwind_rules.h
 */
#define PF_RECALL /* the walk also notes which words it depends on */
#include "node/probe/testunwindimage.h"

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

/* Returns an address: in the stack, in the code, or anywhere. */
static uint64_t take_address(struct input *in)
{
	uint8_t kind = take(in, 1);

	if (kind < 120)
		return STACK_BASE + take(in, 1) * 8;
	if (kind < 240)
		/* the code has 512 bytes, so this may be after its end */
		return CODE_BASE + take(in, 2) % 600;
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

/*
 * Returns a reference to a place in a chunk. Most are near a chunk's beginning, where the input's
 * bytes are.
 */
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

/* ---- tables, made as the agent makes them ---- */

#define N_ROWS	16
#define N_RULES 8
#define N_WORDS 96 /* words of the stack */

static int32_t take_offset(struct input *in)
{
	uint8_t v = take(in, 1);

	return v == 255 ? (int32_t)take(in, 4) : (int8_t)v * 8;
}

static void make_rules(struct input *in)
{
	struct pf_row *rows = (struct pf_row *)image.chunks[1];
	struct pf_rule *rules = (struct pf_rule *)image.chunks[2];

	for (uint16_t i = 0; i < N_ROWS; i++) {
		uint8_t rule = take(in, 1);

		rows[i] = (struct pf_row){i * 16, rule >= 0xf0 ? 0xff00 | rule : rule % N_RULES};
	}
	for (size_t i = 0; i < N_RULES; i++)
		rules[i] = (struct pf_rule){
			.cfa = take(in, 1) % _PF_CFA_MAX,
			.fp = take(in, 1) % _PF_FP_MAX,
			.ra = take(in, 1) % 16 < 14 ? PF_RA_CFA8 : take(in, 1) % _PF_RA_MAX,
			.reg = take(in, 1),
			.cfa_offset = take_offset(in),
			.fp_offset = take_offset(in),
			.extra = take_offset(in),
		};
}

/*
 * Makes a file with rows, a file as the input describes, and a mapping of a file that does not
 * exist.
 */
static void make_tables(struct input *in, struct pf_walk *w)
{
	const struct pf_mapping mappings[] = {
		{CODE_BASE, CODE_BASE + 256, CODE_BASE, .file = 0},
		{CODE_BASE + 256, CODE_BASE + 384, CODE_BASE, .file = 1},
		{CODE_BASE + 384, CODE_BASE + 448, CODE_BASE, .file = 7},
	};
	const struct pf_page page = {PF_REF(1, 0), N_ROWS};

	memcpy(image.chunks[3], mappings, sizeof(mappings));
	memcpy(image.chunks[0], &page, sizeof(page));
	make_rules(in);
	image.files[0] = (struct pf_file){
		.state = PF_FILE_READY, .n_pages = 1, .rules = PF_REF(2, 0), .n_rules = N_RULES};
	image.files[1] = image.files[0];
	image.files[1].state = take(in, 1) % 4;
	w->known = true;
	w->process = (struct pf_process){
		.n_parts = 1,
		.parts = {{CODE_BASE, PF_REF(3, 0), sizeof(mappings) / sizeof(mappings[0])}}};
}

static void make_image(struct input *in, struct pf_walk *w)
{
	uint64_t *words = (uint64_t *)image.stack;

	make_tables(in, w);
	w->stack_start = STACK_BASE + take(in, 1) * 8;
	w->n_returns = take(in, 1) % 3;
	for (size_t i = 0; i < w->n_returns; i++) {
		w->returns[i].slot = take_address(in);
		w->returns[i].address = take_address(in);
	}
	for (size_t i = 0; i < N_WORDS; i++)
		words[i] = take_address(in);
}

/* ---- one walk ---- */

static void walk(struct input *in, struct pf_scratch *s, uint8_t shape)
{
	struct pf_walk *w = &s->walk;

	w->ip = take_address(in);
	for (size_t i = 0; i < PF_REGS; i++)
		w->regs[i] = take_address(in);
	image.reads = 0;
	pf_walk_user(s, 1, 1, shape & 2, shape & 128 && shape & 64);
	if (w->n_frames < 1 || w->n_frames > PF_MAX_USER_FRAMES || w->end >= _PF_END_MAX ||
	    w->n_words != 2 * w->n_frames + w->n_runtime || w->window_bytes > PF_WINDOW_BYTES ||
	    image.reads > 5 * PF_MAX_USER_FRAMES)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct pf_scratch scratch;
	struct input in = {data, n};
	uint8_t shape = take(&in, 1);
	bool made = shape % 4 != 3;

	/* The buffers have their exact size, so that the sanitizer sees a read past an end. */
	memset(&scratch, made ? 0 : shape, sizeof(scratch));
	image.n_code = 512;
	image.n_stack = 4096; /* the size of a page */
	if (!made)
		take_tables(&in, &scratch.walk);
	image.code = fill(&in, 128, image.n_code);
	image.stack = fill(&in, made ? 0 : 1024, image.n_stack);
	for (size_t i = 0; i < IMAGE_CHUNKS; i++)
		image.chunks[i] = fill(&in, made ? 0 : 256, PF_CHUNK_BYTES);
	if (made)
		make_image(&in, &scratch.walk);
	walk(&in, &scratch, shape);
	free(image.code);
	free(image.stack);
	for (size_t i = 0; i < IMAGE_CHUNKS; i++)
		free(image.chunks[i]);
	return 0;
}
