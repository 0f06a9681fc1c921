/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known DIR: makes a store in DIR whose answers are known (hub/api/testknown.h), five minutes ago.
 * Prints the Unix time of the first window's end.
 */
#include "hub/api/testknown.h"

#include <inttypes.h>

int main(int argc, char **argv)
{
	struct store_config c = {.kind = "sqlite", .path = argv[argc > 1]};
	int64_t t0 = (int64_t)(now_wall_ns() / NSEC_PER_SEC) / 10 * 10 - 300;
	struct field_error err = {0};
	struct store *s;
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: known DIR\n");
		return 2;
	}
	if (store_open(&c, &s, &err)) {
		fprintf(stderr, "known: %s\n", err.reason);
		return 1;
	}
	r = known_write(s, t0);
	store_close(s);
	printf("%" PRId64 "\n", t0);
	return r != 0;
}
