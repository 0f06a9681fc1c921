/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets in CPython's structures. For 3.12 and earlier they are in a table. They were measured
 * with offsetof in the headers of each version (Include/internal/pycore_runtime.h, pycore_interp.h,
 * pycore_frame.h, cpython/pystate.h, cpython/code.h); debug builds have the same offsets. Since
 * 3.13 the process has them: _PyRuntime begins with _Py_DebugOffsets
 * (Include/internal/pycore_debug_offsets.h). All offsets are checked in the live process before
 * they are used. Runs on the reader's thread.
 */
#include "node/runtime/python/python.h"

#define OBJECT_TYPE 8

/* ---- the table ---- */

#define STRINGS_OLD .string_ascii = 48, .string_compact = 72
#define STRINGS_NEW .string_ascii = 40, .string_compact = 56 /* 3.12 has no wstr */

#define CODE_OLD                                                                                   \
	.code_file = 104, .code_lines = 120, .code_first_line = 40, STRINGS_OLD, .checked = true
#define KERNEL_OLD                                                                                 \
	.pieces = PF_PYTHON_OBJECT, .interpreter_threads = 8, .thread_next = 8,                    \
	.thread_interpreter = 16, .thread_id = 176, .thread_frame = 24, .thread_bytes = 184,       \
	.frame_bytes = 112, .frame_code = 32, .frame_back = 24, .frame_globals = 48,               \
	.code_counts = 16, .code_name = 112

static const struct python_layout layouts[] = {
	{.minor = 8,
	 .runtime_interpreters = 32,
	 .runtime_holder = 1368,
	 CODE_OLD,
	 .kernel = {KERNEL_OLD, .frame_instruction = 104, .instruction_shift = 1}},
	{.minor = 9,
	 .runtime_interpreters = 32,
	 .runtime_holder = 568,
	 CODE_OLD,
	 .kernel = {KERNEL_OLD, .frame_instruction = 104, .instruction_shift = 1}},
	{.minor = 10,
	 .runtime_interpreters = 32,
	 .runtime_holder = 568,
	 CODE_OLD,
	 .kernel = {KERNEL_OLD, .frame_instruction = 96}},
	{.minor = 11,
	 .runtime_interpreters = 40,
	 .runtime_holder = 576,
	 .code_file = 112,
	 .code_qualname = 128,
	 .code_lines = 136,
	 .code_first_line = 72,
	 STRINGS_OLD,
	 .checked = true,
	 .kernel = {.pieces = PF_PYTHON_ENTRY,
		    .interpreter_threads = 16,
		    .thread_next = 8,
		    .thread_interpreter = 16,
		    .thread_id = 152,
		    .thread_frame = 56,
		    .thread_bytes = 160,
		    .cframe_frame = 8,
		    .cframe_previous = 16,
		    .frame_bytes = 72,
		    .frame_code = 32,
		    .frame_back = 48,
		    .frame_globals = 8,
		    .frame_last = 68,
		    .frame_instruction = 56,
		    .code_instructions = 184,
		    .code_counts = 56,
		    .code_name = 120,
		    .frame_owner = 69,
		    .size_words = 9, /* FRAME_SPECIALS_SIZE, co_stacksize, co_nlocalsplus */
		    .size_first = 12,
		    .size_second = 20}},
	{.minor = 12,
	 .runtime_interpreters = 40,
	 .interpreter_gil = 384,
	 .gil_holder = 8,
	 .code_file = 112,
	 .code_qualname = 128,
	 .code_lines = 136,
	 .code_first_line = 68,
	 STRINGS_NEW,
	 .checked = true,
	 .kernel = {.pieces = PF_PYTHON_CFRAME,
		    .interpreter_threads = 72,
		    .thread_next = 8,
		    .thread_interpreter = 16,
		    .thread_id = 136,
		    .thread_frame = 56,
		    .thread_bytes = 144,
		    .cframe_frame = 0,
		    .cframe_previous = 8,
		    .frame_bytes = 72,
		    .frame_code = 0,
		    .frame_back = 8,
		    .frame_globals = 24,
		    .frame_last = 70,
		    .frame_instruction = 56,
		    .code_instructions = 192,
		    .code_counts = 48,
		    .code_name = 120,
		    .frame_owner = 70,
		    .size_first = 28}}, /* co_framesize */
};

int runtime_python_layout_of(uint32_t hexversion, struct python_layout *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (hexversion >> 24 == 3 && (hexversion >> 16 & 0xff) == layouts[i].minor) {
			*ret = layouts[i];
			return 0;
		}
	return -ENOENT;
}

/* ---- _Py_DebugOffsets ---- */
/*
 * _Py_DebugOffsets has sections of 64-bit words. The first word of a section is the size of its
 * structure. Sections have grown with every version, so each one is found by conditions that its
 * words must meet. If a section is not found, the layout is refused.
 */
struct words {
	const uint64_t *items;
	size_t n;
};
enum { COOKIE, VERSION, FREE_THREADED, RUNTIME, INTERPRETER = 6 };

#define SIZE_LIMIT   (1u << 20) /* bytes of a structure; an interpreter has 400 kB */
#define PIECE_OFFSET 0xfff8u	/* the largest offset that fits into struct pf_python */

/*
 * Returns whether a section of a certain kind begins at w. find_section() returns the index of the
 * first word at which it does; 0: there is none.
 */
typedef bool section_fn(const uint64_t *w);

static size_t find_section(const struct words *w, size_t from, size_t n, section_fn *is)
{
	for (size_t i = from; i + n <= w->n; i++)
		if (w->items[i] < SIZE_LIMIT && is(w->items + i))
			return i;
	return 0;
}

/*
 * Returns whether this is the section of struct _ts: {size, prev, next, interp, current_frame,
 * ...}, the first members since 3.8.
 */
static bool is_thread(const uint64_t *w)
{
	return w[0] > 64 && w[1] == 0 && w[2] == 8 && w[3] == 16 && w[4] > 16 && w[4] < w[0];
}

/*
 * Returns whether this is the section of a frame: {size, previous, executable, instr_ptr,
 * localsplus, owner}. localsplus is the frame's last word.
 */
static bool is_frame(const uint64_t *w)
{
	return w[0] >= 64 && w[4] == w[0] - 8 && w[1] < w[4] && w[2] < w[4] && w[3] < w[4] &&
	       w[5] < w[4] && w[1] != w[2] && w[2] != w[3];
}

/*
 * Returns whether this is the section of code objects: {size, filename, name, qualname, linetable,
 * firstlineno, argcount, ..., co_code_adaptive}.
 */
static bool is_code(const uint64_t *w)
{
	return w[0] > 128 && w[1] > 16 && w[1] % 8 == 0 && w[2] == w[1] + 8 && w[3] == w[1] + 16 &&
	       w[4] == w[1] + 24 && w[5] < w[0] && w[6] < w[0] && w[9] > w[4] && w[9] <= w[0];
}

/* Returns whether this is the section of str: {size, state, length, asciiobject_size}. */
static bool is_string(const uint64_t *w)
{
	return w[1] == 32 && w[2] == 16 && w[3] == 40 && w[0] > w[3];
}

/*
 * Reads the section of struct _ts: {size, prev, next, interp, current_frame, ..., thread_id,
 * native_thread_id, ...}: the two ids are next to each other in the section and in the structure.
 * Other pairs of members may be so, too (3.15: base_frame, last_profiled_frame).
 */
static int read_thread(const struct words *w, size_t at, size_t end, struct python_layout *l)
{
	const uint64_t *t = w->items + at;
	uint64_t last = t[4];

	for (size_t i = 5; at + i + 1 < end && l->n_thread_ids < PYTHON_THREAD_IDS; i++)
		if (t[i] > 16 && t[i] < t[0] && t[i] + 8 == t[i + 1] && t[i] % 8 == 0) {
			l->thread_ids[l->n_thread_ids++] = (uint16_t)t[i];
			last = MAX(last, t[i]);
		}
	if (!l->n_thread_ids || last > PF_PYTHON_READ - 8)
		return -EBADMSG;
	l->kernel.thread_next = (uint16_t)t[2];
	l->kernel.thread_frame = (uint16_t)t[4];
	l->kernel.thread_id = l->thread_ids[0];
	l->kernel.thread_bytes = (uint16_t)(last + 8);
	l->kernel.thread_interpreter = (uint16_t)t[3];
	return 0;
}

/*
 * Reads the section of an interpreter: {size, id, next, threads_head, ..., ceval_gil,
 * gil_runtime_state, ..., the GIL's last_holder, ...}.
 */
static int read_interpreter(const struct words *w, size_t end, struct python_layout *l)
{
	const uint64_t *i = w->items + INTERPRETER;

	if (i[0] >= SIZE_LIMIT || i[2] > PIECE_OFFSET || i[3] > PIECE_OFFSET || i[2] == i[3])
		return -EBADMSG;
	l->kernel.interpreter_next = (uint16_t)i[2];
	l->kernel.interpreter_threads = (uint16_t)i[3];
	/* The GIL's holder is not necessary; it only makes a search shorter. */
	for (size_t k = INTERPRETER + 5; k + 3 < end; k++) {
		uint64_t gil = w->items[k];

		if (gil < i[0] && w->items[k + 3] == gil + 8 && w->items[k - 1] < i[0]) {
			l->interpreter_gil = (uint32_t)w->items[k - 1];
			l->gil_holder = 8;
		}
	}
	return 0;
}

static int read_code(const struct words *w, size_t at, struct python_layout *l)
{
	const uint64_t *c = w->items + at;

	if (c[0] > PIECE_OFFSET)
		return -EBADMSG;
	l->code_file = (uint16_t)c[1];
	l->kernel.code_name = (uint16_t)c[2];
	l->code_qualname = (uint16_t)c[3];
	l->code_lines = (uint16_t)c[4];
	l->code_first_line = (uint16_t)c[5];
	l->kernel.code_counts = (uint16_t)c[6] & ~7;
	l->kernel.code_instructions = (uint16_t)c[9];
	return 0;
}

static int read_frame(const struct words *w, size_t at, struct python_layout *l)
{
	const uint64_t *f = w->items + at;

	if (f[4] > PF_PYTHON_READ)
		return -EBADMSG;
	l->kernel.frame_back = (uint16_t)f[1];
	l->kernel.frame_code = (uint16_t)f[2];
	l->kernel.frame_instruction = (uint16_t)f[3];
	l->kernel.frame_bytes = (uint16_t)f[4];
	l->kernel.frame_last = (uint16_t)f[5];
	/*
	 * _Py_DebugOffsets does not have this offset. In all versions, f_globals comes after
	 * f_executable, previous and f_funcobj.
	 */
	l->kernel.frame_globals = 24;
	return 0;
}

int runtime_python_layout_read(const uint8_t *offsets, size_t n, struct python_layout *ret)
{
	uint64_t items[PYTHON_OFFSETS_BYTES / 8];
	struct words w = {items, MIN(n, sizeof(items)) / 8};
	struct python_layout l = {STRINGS_NEW};
	size_t thread, frame, code;

	memcpy(items, offsets, 8 * w.n);
	if (w.n < 40 || memcmp(offsets, "xdebugpy", 8) != 0 || items[VERSION] >> 24 != 3)
		return -EBADMSG;
	if (items[FREE_THREADED])
		return -ENOTSUP;
	l.minor = (unsigned)(items[VERSION] >> 16 & 0xff);
	l.checked = l.minor <= 14;
	l.kernel.pieces = PF_PYTHON_SHIM;
	l.runtime_interpreters = (uint32_t)items[RUNTIME + 2];
	thread = find_section(&w, INTERPRETER + 4, 8, is_thread);
	frame = thread ? find_section(&w, thread + 6, 6, is_frame) : 0;
	code = frame ? find_section(&w, frame + 6, 10, is_code) : 0;
	if (!code || !find_section(&w, code + 10, 4, is_string) ||
	    items[RUNTIME + 2] >= SIZE_LIMIT || read_interpreter(&w, thread, &l) < 0 ||
	    read_thread(&w, thread, frame, &l) < 0 || read_frame(&w, frame, &l) < 0 ||
	    read_code(&w, code, &l) < 0)
		return -EBADMSG;
	*ret = l;
	return 0;
}

/* ---- the live process ---- */

#define INTERPRETERS_MAX 64 /* interpreters that are checked: the newest ones and the main one */
#define THREADS_MAX	 64 /* threads of one interpreter that are checked */

struct layout_check {
	const struct python_layout *l;
	const struct python_places *at;
	struct memory *m;
	uint64_t main, interpreters[INTERPRETERS_MAX];
	size_t n_interpreters;
	bool saw_frame;
};

static bool is_interpreter(const struct layout_check *c, uint64_t address)
{
	for (size_t i = 0; i < c->n_interpreters; i++)
		if (c->interpreters[i] == address)
			return true;
	return false;
}

static int read_interpreters(struct layout_check *c, uint64_t first)
{
	uint64_t at = first;
	int r = 0;

	while (at && r == 0) {
		if (is_interpreter(c, at))
			return -EBADMSG;
		/* CPython's list ends with the main interpreter, which must be checked, too */
		if (c->n_interpreters == INTERPRETERS_MAX) {
			c->interpreters[INTERPRETERS_MAX - 1] = c->main;
			return 0;
		}
		c->interpreters[c->n_interpreters++] = at;
		r = runtime_memory_u64(c->m, at + c->l->kernel.interpreter_next, &at);
	}
	return r < 0 ? -EBADMSG : is_interpreter(c, c->main) ? 0 : -EBADMSG;
}

/*
 * Checks that the code of the thread's leaf frame is a code object. 0: it is, or the thread has no
 * frame.
 */
static int check_frame(struct layout_check *c, uint64_t thread)
{
	const struct pf_python *k = &c->l->kernel;
	bool by_cframe = k->pieces == PF_PYTHON_ENTRY || k->pieces == PF_PYTHON_CFRAME;
	uint64_t at, code, type, tags = c->l->minor >= 14 ? 7 : 0;
	uint8_t last = 0;

	if (runtime_memory_u64(c->m, thread + k->thread_frame, &at) < 0 ||
	    (by_cframe && at && runtime_memory_u64(c->m, at + k->cframe_frame, &at) < 0))
		return -EBADMSG;
	if (!at)
		return 0;
	if ((k->pieces >= PF_PYTHON_CFRAME &&
	     runtime_memory_u8(c->m, at + k->frame_last, &last) < 0) ||
	    last > PF_PYTHON_OWNER_SHIM + 1)
		return -EBADMSG;
	if (last >= PF_PYTHON_OWNER_SHIM) /* the frame runs no code of the program */
		return 0;
	if (runtime_memory_u64(c->m, at + k->frame_code, &code) < 0 ||
	    runtime_memory_u64(c->m, (code & ~tags) + OBJECT_TYPE, &type) < 0 ||
	    (c->at->code_type && type != c->at->code_type))
		return -EBADMSG;
	c->saw_frame = true;
	return 0;
}

static int check_threads(struct layout_check *c, uint64_t interpreter)
{
	uint64_t thread, owner;

	if (runtime_memory_u64(c->m, interpreter + c->l->kernel.interpreter_threads, &thread) < 0)
		return -EBADMSG;
	if (!thread && interpreter == c->main)
		return -EAGAIN;
	for (size_t i = 0; thread && i < THREADS_MAX; i++) {
		if (runtime_memory_u64(c->m, thread + c->l->kernel.thread_interpreter, &owner) <
			    0 ||
		    owner != interpreter || check_frame(c, thread) < 0 ||
		    runtime_memory_u64(c->m, thread + c->l->kernel.thread_next, &thread) < 0)
			return -EBADMSG;
	}
	return 0;
}

/*
 * Returns the address of the pointer to the thread state that holds the main interpreter's GIL; 0:
 * not found.
 */
static uint64_t find_holder(const struct layout_check *c)
{
	uint64_t at = c->at->runtime + c->l->runtime_holder, thread, owner;

	if (!c->l->runtime_holder) {
		if (!c->l->interpreter_gil ||
		    runtime_memory_u64(c->m, c->main + c->l->interpreter_gil, &at) < 0 || !at)
			return 0;
		at += c->l->gil_holder;
	}
	if (runtime_memory_u64(c->m, at, &thread) < 0)
		return 0;
	if (thread &&
	    (runtime_memory_u64(c->m, thread + c->l->kernel.thread_interpreter, &owner) < 0 ||
	     !is_interpreter(c, owner)))
		return 0;
	return at;
}

static int check_once(struct layout_check *c, uint64_t head)
{
	uint64_t pair[2]; /* interpreters.head, interpreters.main */
	int r;

	c->n_interpreters = 0;
	if (runtime_memory_read(c->m, head, pair, sizeof(pair)) < 0)
		return -EBADMSG;
	if (!pair[0] || !pair[1])
		return -EAGAIN;
	c->main = pair[1];
	r = read_interpreters(c, pair[0]);
	for (size_t i = 0; r == 0 && i < c->n_interpreters; i++)
		r = check_threads(c, c->interpreters[i]);
	return r;
}

/*
 * Finds which of the ids is pthread_self(). In glibc and musl, a thread's control block begins with
 * its own address.
 */
static int find_thread_id(const struct layout_check *c, uint16_t *ret)
{
	uint64_t thread, id, self;

	if (c->l->n_thread_ids < 2)
		return 0;
	if (runtime_memory_u64(c->m, c->main + c->l->kernel.interpreter_threads, &thread) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < c->l->n_thread_ids; i++)
		if (runtime_memory_u64(c->m, thread + c->l->thread_ids[i], &id) == 0 &&
		    runtime_memory_u64(c->m, id, &self) == 0 && self == id) {
			*ret = c->l->thread_ids[i];
			return 0;
		}
	return -EAGAIN;
}

#define CHECKS_MAX 20 /* attempts: one fails if the process ends a frame meanwhile */

int runtime_python_layout_check(const struct python_layout *l, const struct python_places *at,
				struct memory *m, struct pf_python *ret)
{
	struct layout_check c = {.l = l, .at = at, .m = m};
	struct pf_python k = l->kernel;
	int r = -EBADMSG;

	k.interpreters = at->runtime + l->runtime_interpreters;
	for (int i = 0; i < CHECKS_MAX && r == -EBADMSG; i++)
		r = check_once(&c, k.interpreters);
	if (r < 0)
		return r;
	if (!l->checked && !c.saw_frame)
		return -EAGAIN;
	k.holder = find_holder(&c);
	r = find_thread_id(&c, &k.thread_id);
	if (r == 0)
		*ret = k;
	return r;
}
