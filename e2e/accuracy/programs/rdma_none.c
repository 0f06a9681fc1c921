/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_none: calls the real libibverbs on a machine without an RDMA device. There is no queue pair,
 * so nothing may be counted. While podflame profiles, the calls must return the same as before. The
 * protocol is that of told.h.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "told.h"

#define CALLS 3

/*
 * A structure of zeros, as large as libibverbs' own one. podflame's probe at the function finds no
 * context in it.
 */
static uint64_t no_pair[256];

__attribute__((noinline)) static void asks(int *ret)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	ret[0] = list ? 0 : errno;
	ret[1] = n;
	if (list)
		ibv_free_device_list(list);
	ret[2] = ibv_qp_to_qp_ex((struct ibv_qp *)no_pair) != NULL;
}

int main(int argc, char **argv)
{
	int right[CALLS], now[CALLS];

	open_told(argc, argv);
	asks(right);
	if (right[1]) {
		fputs("rdma_none: this machine has an RDMA device\n", stderr);
		return 1;
	}
	wait_for_order();
	for (unsigned n = 0; n < rounds; n++) {
		asks(now);
		if (memcmp(now, right, sizeof(now)) != 0)
			fail("a call gives something else now");
	}
	fputs("rdma:send asks 0\n", told);
	end();
}
