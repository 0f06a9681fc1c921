/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how many BPF programs, maps and links exist in the kernel, of all processes together. */
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned count(enum bpf_cmd next_id)
{
	union bpf_attr a = {0};
	unsigned n = 0;

	while (!syscall(SYS_bpf, next_id, &a, sizeof(a))) {
		a.start_id = a.next_id;
		n++;
	}
	return n;
}

int main(void)
{
	printf("%u programs, %u maps, %u links\n", count(BPF_PROG_GET_NEXT_ID),
	       count(BPF_MAP_GET_NEXT_ID), count(BPF_LINK_GET_NEXT_ID));
	return 0;
}
