// SPDX-License-Identifier: Apache-2.0
/*
 * hbm-alloc and hbm-inuse of a process that lies (liar_test.h). Its false driver first only
 * allocates and frees: values and losses are as a model in this file says. Then all kinds of calls
 * have random arguments: values are bounded, and nothing stays when the probes are detached. The
 * values of an honest process are exact.
 */
#include "node/probe/gpu_scene_test.h"

#include "node/probe/liar_test.h"

#define HBM (HBM_ALLOC | HBM_INUSE)

/* ---- a driver with a function for each kind of call, which only returns a result ---- */

__asm__(".pushsection pf_driver, \"ax\", @progbits\n"
	".p2align 4\n"
	"lying_calls:\n"
	".rept 32\n"
	".cfi_startproc\n"
	"movl lying_result(%rip), %eax\n"
	"ret\n"
	".cfi_endproc\n"
	".p2align 4\n"
	".endr\n"
	".popsection\n");
extern const char lying_calls[][16];
int lying_result __attribute__((visibility("hidden")));

static const struct pf_site calls[] = {
	{.kind = PF_SITE_GPU_ALLOC, .ptr_arg = 1, .size_arg = 2},
	{.kind = PF_SITE_GPU_PITCH, .ptr_arg = 1, .size_arg = 2, .count_arg = 3},
	{.kind = PF_SITE_GPU_ASYNC,
	 .ptr_arg = 1,
	 .size_arg = 2,
	 .count_arg = 3,
	 .flags = PF_GPU_OF_POOL},
	{.kind = PF_SITE_GPU_FREE, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_ARRAY,
	 .ptr_arg = 1,
	 .size_arg = 2,
	 .count_arg = 3,
	 .flags = PF_GPU_3D | PF_GPU_MIPMAP},
	{.kind = PF_SITE_GPU_HANDLE, .ptr_arg = 1, .size_arg = 2, .count_arg = 3},
	{.kind = PF_SITE_GPU_RELEASE, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_RETAIN, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_MAP, .ptr_arg = 1, .size_arg = 2, .count_arg = 3},
	{.kind = PF_SITE_GPU_UNMAP, .ptr_arg = 1, .size_arg = 2},
	{.kind = PF_SITE_GPU_UNSEEN, .size_arg = 1},
	{.kind = PF_SITE_GPU_POOL, .ptr_arg = 1, .size_arg = 2, .flags = PF_GPU_PROPS},
	{.kind = PF_SITE_GPU_POOL_DESTROY, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_INIT},
	{.kind = PF_SITE_GPU_TABLE},
	{.kind = PF_SITE_GPU_CONTEXT, .ptr_arg = 1, .size_arg = 2},
	{.kind = PF_SITE_GPU_ATTACH, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_DESTROY, .ptr_arg = 1, .flags = PF_GPU_DETACH},
	{.kind = PF_SITE_GPU_SET, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_PUSH, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_POP},
	{.kind = PF_SITE_GPU_PRIMARY, .ptr_arg = 1, .size_arg = 2},
	{.kind = PF_SITE_GPU_PRIMARY_RELEASE, .size_arg = 1},
	{.kind = PF_SITE_GPU_PRIMARY_RESET, .size_arg = 1},
	{.kind = PF_SITE_GPU_GREEN, .ptr_arg = 1, .size_arg = 2},
	{.kind = PF_SITE_GPU_GREEN_DESTROY, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_FROM_GREEN, .ptr_arg = 1, .count_arg = 3},
	{.kind = PF_SITE_GPU_CURRENT, .ptr_arg = 1},
	{.kind = PF_SITE_GPU_DEVICE, .ptr_arg = 1, .count_arg = 3},
};
enum { N_MODELLED = 4 }; /* the first ones, which only allocate and free */

static void call(size_t which, uint64_t a, uint64_t b, uint64_t c)
{
	int (*function)(uint64_t a, uint64_t b, uint64_t c);
	const void *at = lying_calls[which];

	memcpy(&function, &at, sizeof(function));
	status = function(a, b, c);
}

/* ---- a model: what lives, by address ---- */

enum { ASKED, LIVING, LOST }; /* in said[]: bytes of hbm-alloc and hbm-inuse; losses */

#define N_ADDRESSES 16
#define N_WORDS	    (LIAR_BYTES / 8 / 2)

static uint64_t living[N_ADDRESSES];

/* Addresses of the false driver; 0 is none. The programs leave out the highest byte. */
static uint64_t address_of(uint64_t number)
{
	return number ? any() << 56 | number * 0x1000 : 0;
}

static void model_alloc(uint64_t out, uint64_t bytes)
{
	uint64_t address = 0, *entry;

	if (!bytes || bytes >= PF_MEM_SIZE_MAX)
		return;
	said[ASKED] += bytes;
	if (liar_has(out, sizeof(address)))
		memcpy(&address, (void *)out, sizeof(address));
	if (!address) {
		said[LOST]++;
		return;
	}
	entry = &living[(address & PF_GPU_ANY) / 0x1000];
	said[LIVING] += bytes - *entry;
	*entry = bytes;
}

/* The pitch is a number of 32 bits, and the rows of 31; else the call counts in no event. */
static void model_pitch(uint64_t out, uint64_t rows, uint64_t pitch_at)
{
	uint64_t pitch = 0;

	if (!rows || rows >= PF_MEM_SIZE_MAX)
		return;
	if (liar_has(pitch_at, sizeof(pitch)))
		memcpy(&pitch, (void *)pitch_at, sizeof(pitch));
	if (!pitch || pitch >> 32 || rows >> 31 || pitch * rows >= PF_MEM_SIZE_MAX)
		said[LOST] += 2;
	else
		model_alloc(out, pitch * rows);
}

/* ---- the liar ---- */

static uint64_t any_bytes(void)
{
	return ANY_OF(9, 0, 1, 1000, 1 << 20, PF_MEM_SIZE_MAX - 1, PF_MEM_SIZE_MAX, UINT64_MAX);
}

/* The first half of the memory has addresses, the second one has pitches. */
static void fill(void)
{
	uint64_t *words = (uint64_t *)liar_writes;

	for (size_t i = 0; i < N_WORDS; i++) {
		words[i] = address_of(below(N_ADDRESSES));
		words[N_WORDS + i] = ANY_OF(9, 0, 1, 256, 4096, 1 << 30, UINT32_MAX, 1ull << 32);
	}
}

/* Where an address or a pitch is; sometimes nowhere. */
static uint64_t any_place(bool is_pitch)
{
	uint64_t at = any_address(8, 9), start = (uintptr_t)liar_memory;

	return liar_has(at, 8) ? start + ((at - start) / 8 % N_WORDS + is_pitch * N_WORDS) * 8 : at;
}

static void lie_modelled(void)
{
	uint64_t out = any_place(false), bytes = any_bytes(), pitch = any_place(true);
	uint64_t number = below(N_ADDRESSES);
	unsigned which = (unsigned)below(N_MODELLED);

	lying_result = !below(4);
	if (calls[which].kind == PF_SITE_GPU_FREE) {
		call(which, address_of(number), any(), any());
		if (!lying_result) {
			said[LIVING] -= living[number];
			living[number] = 0;
		}
		return;
	}
	call(which, out, bytes, pitch);
	if (lying_result)
		return;
	if (calls[which].kind == PF_SITE_GPU_PITCH)
		model_pitch(out, bytes, pitch);
	else
		model_alloc(out, bytes);
}

static uint64_t any_argument(void)
{
	switch (below(4)) {
	case 0:
		return address_of(below(N_ADDRESSES));
	case 1:
		return any_bytes();
	case 2:
		return below(3); /* a device */
	}
	return any_address(1, 9);
}

IN_SECTION(pf_loop) static void lie(void)
{
	if (!below(9) && !liar_blinks)
		fill();
	if (!liar_blinks) {
		lie_modelled();
		return;
	}
	lying_result = !below(4);
	call(below(ARRAY_SIZE(calls)), any_argument(), any_argument(), any_argument());
}

IN_SECTION(pf_loop) static void body_liar(struct truth *t)
{
	liar_run(t, lie);
}

/* ---- the honest process ---- */

#define SHORT_BYTES 1000
#define LONG_BYTES  3000

IN_SECTION(pf_short) static void allocate_short(uint64_t *at)
{
	status = cu_mem_alloc(at, SHORT_BYTES);
}

IN_SECTION(pf_long) static void allocate_long(uint64_t *at)
{
	status = cu_mem_alloc(at, LONG_BYTES);
}

static void say_truth(void)
{
	uint64_t at;

	allocate_long(&at);
	allocate_short(&at);
	status = cu_mem_free(at);
}

IN_SECTION(pf_loop) static void body_honest(struct truth *t)
{
	honest_run(t, say_truth);
}

/* ---- what the drains report ---- */

static void take(struct liar_pair *pair, const struct drain *d, const struct raw_sample *s)
{
	bool is_liar = (pid_t)s->tgid == pair->liar.c.pid;

	watch_sample(is_liar ? &pair->liar.w : &pair->honest.w, d, s);
}

static void check_honest(const struct memory_watch *w, unsigned n)
{
	assert_int_equal(w->alloc.in_short, n * SHORT_BYTES);
	assert_int_equal(w->alloc.in_long, n * LONG_BYTES);
	assert_int_equal(w->alloc.n, 2 * n);
	assert_int_equal(w->inuse.in_long, n * LONG_BYTES);
	assert_int_equal(w->inuse.n, n);
}

static void check_liar(const struct liar_pair *pair, unsigned n)
{
	const struct memory_watch *w = &pair->liar.w;

	assert_in_range(w->alloc.n, 0, n);
	assert_in_range(w->inuse.n, 0, w->alloc.n);
	assert_in_range(w->alloc.bytes, 0, w->alloc.n * PF_MEM_SIZE_MAX);
	assert_in_range(w->inuse.bytes, 0, w->inuse.n * PF_MEM_SIZE_MAX);
	if (liar_blinks)
		return;
	assert_int_equal(w->alloc.bytes, said[ASKED]);
	assert_int_equal(w->inuse.bytes, said[LIVING]);
	assert_int_equal(pair->lost, said[LOST]);
}

static void run_pair(void)
{
	struct liar_pair pair = {
		.liar.set = PROBES_GPU_MEMORY, .honest.set = PROBES_GPU_MEMORY, .take = take};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		add_site(&pair.liar.probed, lying_calls[i], calls[i]);
	add_driver(&pair.honest.probed);
	liar_open(&pair, body_liar, body_honest, HBM);
	for (unsigned i = 0; i < liar_rounds(); i++) {
		liar_round(&pair, i);
		check_honest(&pair.honest.w, (i + 1) * LIAR_CALLS);
		check_liar(&pair, (i + 1) * LIAR_CALLS);
	}
	pair.liar.a = probes_detach(pair.liar.p, pair.liar.a);
	assert_int_equal(n_objects(&pair.honest), 0);
	assert_int_equal(scene_set(&pair.honest)->shares.of[SHARED_OBJECTS]->held[0], 0);
	assert_int_equal(n_held(&pair.honest),
			 scene_set(&pair.honest)->shares.of[SHARED_LIVE]->held[0]);
	liar_close(&pair);
}

static void what_is_allocated_and_lost_is_exact(void **state)
{
	(void)state;
	liar_blinks = false;
	run_pair();
}

static void any_calls_are_bounded(void **state)
{
	(void)state;
	liar_blinks = true;
	run_pair();
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_allocated_and_lost_is_exact),
		cmocka_unit_test(any_calls_are_bounded),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
