/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill DIR ROWS: makes a store in DIR with so many rows of on-cpu profiles, as agents would have
 * sent them until now (hub/query/benchload.h has their form). Prints how many rows there are, the
 * Unix time of the first window's start and of the last one's end, and the value of namespace
 * "app".
 */
#include "hub/query/benchload.h"

#include <inttypes.h>

int main(int argc, char **argv)
{
	static struct load l = LOAD_LIFE(0);
	struct store_config c = {.kind = "sqlite", .path = argv[argc > 1]};
	struct field_error err = {};
	struct store *s;
	uint64_t end_s = now_wall_ns() / NSEC_PER_SEC / WINDOW_S * WINDOW_S;

	if (argc != 3) {
		fprintf(stderr, "usage: fill DIR ROWS\n");
		return 2;
	}
	l.windows = (uint64_t)strtod(argv[2], NULL) / (PODS * ROWS_A_PROFILE);
	l.start_s = end_s - l.windows * WINDOW_S;
	if (store_open(&c, &s, &err))
		bench_die(err.reason, EINVAL);
	write_windows(&l, s, EVENT_ON_CPU, l.windows, ROWS_A_PROFILE);
	/* what the hub does each minute */
	for (uint64_t k = 0; k <= l.n_rows / 1000000; k++)
		store_expire(s, now_wall_ns());
	store_close(s);
	printf("{\"rows\":%" PRIu64 ",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"value\":%" PRIu64
	       "}\n",
	       l.n_rows, l.start_s, end_s, l.value);
	return 0;
}
