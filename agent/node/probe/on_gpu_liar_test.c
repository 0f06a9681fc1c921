// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu of a process that lies in all that the libraries report (liar_test.h): each piece of work
 * that it reports is either a sample or a loss, and its values are those that it reported, or are
 * bounded if its memory changes meanwhile. The values of an honest process are exact.
 */
#include "node/probe/on_gpu_scene_test.h"

#include "node/probe/liar_test.h"

#define CORRELATIONS 8
#define HONEST	     "honest"
#define SHORT_US     10
#define LONG_US	     20

/* ---- the liar ---- */

/* in said[]; its losses count as pieces. UNEVEN: pieces whose time is no whole microsecond */
enum { PIECES, MICROSECONDS, UNEVEN };

static struct {
	bool known;
	uint32_t level;
} launches[CORRELATIONS];
static struct podflame_cuda_status last;
static bool has_last;
static uint64_t came; /* pieces since `last` */

static void lie_launch(void)
{
	uint32_t correlation = (uint32_t)below(CORRELATIONS);
	uint32_t level = (uint32_t)ANY_OF(20, 0, 0, 1, 19, 20, 21, 255, UINT32_MAX);

	probe_launch(correlation, level, (uint32_t)ANY_OF(9, 0, 1, 2, 3, 255),
		     (const char *)any_address(1, 3), (const char *)any_address(1, 3),
		     (uint32_t)any());
	if (level > PF_GPU_LEVEL_MAX) {
		said[PIECES]++;
		return;
	}
	launches[correlation].known = true;
	launches[correlation].level = level;
}

/* Fills the memory with pieces, and with names that may have no end. */
static void fill(void)
{
	struct podflame_cuda_work *w = (void *)liar_writes;

	for (size_t i = 0; i < LIAR_BYTES / sizeof(*w); i++) {
		uint64_t us = ANY_OF(5, 0, 1, 7, 1000, 1ull << 30, PF_GPU_NS_MAX / 1000);

		w[i] = (struct podflame_cuda_work){
			.start_ns = below(9) ? 5000 : any(),
			.name = any_address(1, 4),
			.n_bytes = any(),
			.graph_node = any(),
			.graph = (uint32_t)any(),
			.correlation = (uint32_t)below(CORRELATIONS + 1),
			.device = (uint32_t)any(),
			.context = (uint32_t)any(),
			.stream = (uint32_t)any(),
			.kind = (uint8_t)ANY_OF(9, 0, 0, 0, 1, 2, 3, 255),
			.copy_kind = (uint8_t)any(),
			.level = (uint8_t)any(),
			.unused = (uint8_t)any(),
		};
		w[i].end_ns = w[i].start_ns + us * 1000;
		if (!below(9))
			w[i].end_ns = w[i].start_ns - 1000;
	}
}

/*
 * Counts the microseconds of a piece that is no loss. A piece that overlaps others may have a time
 * that is no whole microsecond: the programs round it by chance.
 */
static void say_us(uint32_t correlation, uint64_t start_ns, uint64_t end_ns)
{
	uint64_t ns = end_ns - start_ns;
	uint32_t level;

	if (correlation >= CORRELATIONS || !launches[correlation].known || end_ns < start_ns)
		return;
	level = launches[correlation].level;
	if (ns >= PF_GPU_NS_MAX >> level)
		return;
	said[MICROSECONDS] += (ns << level) / 1000;
	said[UNEVEN] += (ns << level) % 1000 != 0;
}

static void say_piece(uint64_t at)
{
	struct podflame_cuda_work w;

	if (liar_blinks || !liar_has(at, sizeof(w)))
		return;
	memcpy(&w, (void *)at, sizeof(w));
	say_us(w.correlation, w.start_ns, w.end_ns);
}

static void lie_work(void)
{
	uint64_t at = any_address(64, 6);
	uint32_t n = (uint32_t)ANY_OF(20, 0, 1, 2, 31, 32, 33, 1000, UINT32_MAX);
	uint32_t size = (uint32_t)ANY_OF(20, 64, 64, 64, 0, 63, 128, 4096, 4097, UINT32_MAX);
	bool read = n && n <= PODFLAME_CUDA_WORK_MAX && size >= sizeof(struct podflame_cuda_work) &&
		    size <= PF_GPU_PIECE_MAX;

	size = size > 64 && size <= PF_GPU_PIECE_MAX ? size / 64 * 64 : size;
	if (below(4) == 0)
		fill();
	probe_work((const void *)at, n, size);
	said[PIECES] += read ? n : 1;
	came += read ? n : 0;
	for (uint32_t i = 0; read && i < n; i++)
		say_piece(at + (uint64_t)i * size);
}

static uint64_t lost_since(uint64_t was, uint64_t is)
{
	return is > was && is - was < 1 << 24 ? is - was : 0;
}

/* Pieces that the library says to have reported, and that have not come, are losses. */
static uint64_t missed_since(const struct podflame_cuda_status *is)
{
	uint64_t told = 0, missed;

	for (size_t i = 0; i < PODFLAME_CUDA_WORK_KINDS; i++)
		told += is->told[i].n - last.told[i].n;
	if (told >= 1 << 24)
		return 0;
	missed = told > came ? told - came : 0;
	came -= told - missed;
	return missed;
}

/* What the programs read as the next status. The first one has no losses. */
static void model_status(const struct podflame_cuda_status *is)
{
	if (has_last)
		said[PIECES] += lost_since(last.n_dropped, is->n_dropped) +
				lost_since(last.n_untimed, is->n_untimed) +
				lost_since(last.n_unread, is->n_unread) +
				lost_since(last.n_unseen, is->n_unseen) + missed_since(is);
	else
		came = 0;
	last = *is;
	has_last = true;
}

static uint64_t any_count(uint64_t was)
{
	return ANY_OF(9, was, was + 1, was + 7, was - 1, was + (1 << 24), UINT64_MAX);
}

static void lie_status(void)
{
	struct podflame_cuda_status s = {
		.state = (uint32_t)ANY_OF(9, 0, 1, 2, 6, 7, 255),
		.told = {{.n = any_count(last.told[0].n)}, {.n = any_count(last.told[1].n)}},
		.n_dropped = any_count(last.n_dropped),
		.n_untimed = any_count(last.n_untimed),
		.n_unread = any_count(last.n_unread),
		.n_unseen = any_count(last.n_unseen),
		.own_ns = any_count(last.own_ns),
	};
	uint32_t size = (uint32_t)ANY_OF(20, sizeof(s), sizeof(s), sizeof(s) + 8, 0, 8, UINT32_MAX);
	bool nowhere = !below(9);

	probe_status(nowhere ? (const void *)16 : &s, size);
	if (nowhere || size < offsetof(struct podflame_cuda_status, all)) {
		said[PIECES]++;
		return;
	}
	if (size < sizeof(s))
		memset((char *)&s + size, 0, sizeof(s) - size);
	model_status(&s);
}

static void lie_correlation(void)
{
	uint32_t correlation = (uint32_t)below(CORRELATIONS);

	probe_cuda_correlation(correlation, (int)any(), (const char *)any_address(1, 2));
	launches[correlation].known = true;
	launches[correlation].level = 0;
}

/* at: where the pointer to the record is. on_gpu_reports_test.c tests the offsets. */
static void say_record(uint64_t at)
{
	uint64_t record, times[2];
	uint32_t kind, correlation;

	if (liar_blinks || !liar_has(at, sizeof(record)))
		return;
	memcpy(&record, (void *)at, sizeof(record));
	if (!liar_has(record, 112))
		return;
	memcpy(&kind, (void *)record, sizeof(kind));
	memcpy(times, (void *)(record + 16), sizeof(times));
	memcpy(&correlation, (void *)(record + 92), sizeof(correlation));
	if (kind == 3 || kind == 10)
		say_us(correlation, times[0], times[1]);
}

/* The memory has pieces, whose words are the pointers here. Some happen to point to a record. */
static void lie_batch(void)
{
	uint32_t n = (uint32_t)ANY_OF(20, 0, 1, 2, PF_PARCAGPU_BATCH_MAX, 129, UINT32_MAX);
	uint64_t at = any_address(8, 4);
	bool read = n && n <= PF_PARCAGPU_BATCH_MAX;

	probe_activity_batch((const void **)at, n);
	said[PIECES] += read ? n : 1;
	came += read ? n : 0;
	for (uint32_t i = 0; read && i < n; i++)
		say_record(at + i * sizeof(uint64_t));
}

IN_SECTION(pf_loop) static void lie(void)
{
	static void (*const lies[])(void) = {lie_launch, lie_work,	  lie_work,
					     lie_status, lie_correlation, lie_batch};

	lies[below(ARRAY_SIZE(lies))]();
	after = 1;
}

IN_SECTION(pf_loop) static void body_liar(struct truth *t)
{
	liar_run(t, lie);
}

/* ---- the honest process ---- */

static void say_truth(void)
{
	static uint32_t n;

	launch_short(++n, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(n, HONEST, SHORT_US);
	launch_long(++n, 0, PODFLAME_CUDA_GRAPH);
	report_kernel(n, HONEST, LONG_US);
}

IN_SECTION(pf_loop) static void body_honest(struct truth *t)
{
	honest_run(t, say_truth);
}

/* ---- what the drains report ---- */

struct taken {
	uint64_t n, value; /* of the liar */
	uint64_t n_short, n_long;
};

static void take_honest(struct taken *all, const struct drain *d, const struct raw_sample *s)
{
	bool is_short = streq(launched_by(sample_drain_stack(d, s->ustack)), "short");

	assert_string_equal(sample_gpu_name(sample_drain_stack(d, s->kstack)), HONEST);
	assert_int_equal(s->value, s->n * (is_short ? SHORT_US : LONG_US));
	*(is_short ? &all->n_short : &all->n_long) += s->n;
}

static void take(struct liar_pair *pair, const struct drain *d, const struct raw_sample *s)
{
	const struct raw_stack *work = sample_drain_stack(d, s->kstack);
	struct taken *all = pair->arg;

	if (!s->n)
		return; /* it only refers to a launch */
	assert_non_null(work);
	assert_true(work->n && work->frames[0].gpu_work);
	assert_true(strnlen(sample_gpu_name(work), 4096) < PF_FRAME_GPU_WORK_WORDS * 8);
	if ((pid_t)s->tgid == pair->honest.c.pid) {
		take_honest(all, d, s);
		return;
	}
	all->n += s->n;
	all->value += s->value;
}

static void run_pair(void)
{
	struct taken all = {};
	struct liar_pair pair = {
		.liar.set = PROBES_GPU, .honest.set = PROBES_GPU, .take = take, .arg = &all};

	add_probes(&pair.liar.probed);
	add_probes(&pair.honest.probed);
	liar_open(&pair, body_liar, body_honest, ON_GPU);
	for (unsigned i = 0; i < liar_rounds(); i++) {
		liar_round(&pair, i);
		assert_int_equal(all.n + pair.lost, said[PIECES]);
		if (liar_blinks)
			assert_in_range(all.value, 0, all.n * (PF_GPU_NS_MAX / 1000));
		else
			assert_in_range(all.value, said[MICROSECONDS],
					said[MICROSECONDS] + said[UNEVEN]);
		assert_int_equal(all.n_short, (i + 1) * LIAR_CALLS);
		assert_int_equal(all.n_long, (i + 1) * LIAR_CALLS);
	}
	liar_close(&pair);
}

static void each_reported_piece_is_a_sample_or_a_loss(void **state)
{
	(void)state;
	liar_blinks = false;
	run_pair();
}

static void pages_that_come_and_go_lose_no_piece(void **state)
{
	(void)state;
	liar_blinks = true;
	run_pair();
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_reported_piece_is_a_sample_or_a_loss),
		cmocka_unit_test(pages_that_come_and_go_lose_no_piece),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
