/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what Grafana's calls cost for a day of a namespace of 20 services with 1000 stacks each,
 * nearly all of them seen (as hub/query/formats_bench.c): the bytes of the answer, and the CPU time
 * of the hub and of the client, which only counts them.
 */
#include "hub/api/benchhub.h"
#include "hub/query/benchload.h"

#define T0	  1700000000
#define N_WINDOWS 100
#define ROUNDS	  5

#define TIMES "\"start\":1700000000000,\"end\":1700086399000"
#define TYPE  "\"profileTypeID\":\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\","
#define OF    "{" TYPE "\"labelSelector\":\"{namespace=\\\"app\\\"}\"," TIMES

static const struct {
	const char *name, *method, *body;
} calls[] = {
	{"labels", "LabelNames", "{" TIMES "}"},
	{"label_sets", "Series", "{" TIMES ",\"labelNames\":[\"namespace\",\"service_name\"]}"},
	{"series", "SelectSeries", OF ",\"step\":60,\"groupBy\":[\"namespace\",\"service_name\"]}"},
	{"flame_graph", "SelectMergeStacktraces", OF ",\"maxNodes\":16384}"},
	{"profile", "SelectMergeProfile", OF "}"},
};

int main(void)
{
	static const char *const headers[] = {"Content-Type: application/json",
					      "Accept-Encoding: gzip", NULL};
	static struct load life = LOAD_LIFE(T0);
	struct hub h = {0};

	start_hub(&h);
	write_windows(&life, h.store, EVENT_ON_CPU, N_WINDOWS, ROWS_A_PROFILE);
	for (size_t k = 0; k < ARRAY_SIZE(calls); k++) {
		_cleanup_free_ char *path =
			xasprintf("/querier.v1.QuerierService/%s", calls[k].method);
		_cleanup_free_ char *cpu = xasprintf("formats.cpu_grafana_%s", calls[k].name);
		_cleanup_free_ char *size = xasprintf("formats.kbytes_grafana_%s", calls[k].name);
		double ms[ROUNDS], kbytes;

		for (unsigned i = 0; i < ROUNDS; i++) {
			uint64_t before = own_cpu_ns();

			ask_hub(&h, path, headers, calls[k].body);
			ms[i] = (double)(own_cpu_ns() - before) / 1e6;
		}
		kbytes = (double)h.n_bytes / 1024;
		bench_rounds(cpu, ms, ROUNDS, "ms", "", "");
		bench_rounds(size, &kbytes, 1, "KiB", "", "packed with gzip");
	}
	stop_hub(&h);
	return 0;
}
