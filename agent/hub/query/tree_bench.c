/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast rows become a tree and a reply: 100,000 stacks of 30 frames, as in store_bench.
 * In a second run, each stack has a frame without a name, and uploaded symbols have no name for it.
 */
#include "hub/query/query.h"
#include "lib/base/bench.h"

#define ROWS  100000
#define DEPTH 30

struct rows {
	struct frame frames[DEPTH][1024];
	char names[DEPTH][1024][32];
};

static const struct frame *frame_of(struct rows *r, unsigned row, unsigned depth)
{
	unsigned varies = depth < 10 ? row / 1000 : depth < DEPTH - 1 ? row / 100 : row;

	return &r->frames[depth][varies % 1024];
}

static struct rows *make_rows(bool unnamed)
{
	struct rows *r = xcalloc(1, sizeof(*r));

	for (unsigned d = 0; d < DEPTH; d++) {
		for (unsigned k = 0; k < 1024; k++) {
			char *name = r->names[d][k];

			snprintf(name, sizeof(r->names[d][k]), "function_%u_%u", d, k);
			r->frames[d][k] = (struct frame){
				.kind = FRAME_APP, .name = name, .module = "/bin/bench"};
			if (unnamed && d == DEPTH - 1)
				r->frames[d][k].name = NULL;
		}
	}
	return r;
}

static size_t unknown(const struct frame *f, const char *ns, void *arg, const struct frame **ret)
{
	(void)f, (void)ns;
	(void)ret;
	++*(size_t *)arg;
	return 0;
}

static void bench_tree(const char *name, bool unnamed, tree_names_fn *names, const char *against)
{
	const struct frame *frames[DEPTH];
	struct rows *r = make_rows(unnamed);
	struct tree *t = query_tree_new(&query_deepflow_form);
	size_t n_asked = 0;
	uint64_t from;

	query_tree_set_names(t, names, &n_asked);
	from = now_mono_ns();
	for (unsigned i = 0; i < ROWS; i++) {
		struct store_row row = {.app_service = "bench",
					.head = {.thread_comm = "worker"},
					.frames = frames,
					.n_frames = DEPTH,
					.value = 10101,
					.n_samples = 1};

		for (unsigned d = 0; d < DEPTH; d++)
			frames[d] = frame_of(r, i, d);
		if (query_tree_add(t, &row, -1))
			bench_die("tree_add", EINVAL);
	}
	bench_report(name, (now_mono_ns() - from) / 1e6, "ms", against);
	if (names && n_asked != ROWS)
		bench_die("names asked", EINVAL);
	query_tree_free(t);
	free(r);
}

int main(void)
{
	bench_tree("query.tree", false, NULL, "100000 stacks of 30 frames");
	bench_tree("query.tree_unnamed", true, NULL, "query.tree");
	bench_tree("query.tree_unnamed_asked", true, unknown, "query.tree_unnamed");
	return 0;
}
