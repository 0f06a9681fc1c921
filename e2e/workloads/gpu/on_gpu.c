/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known answer in C: gives work of known length to two GPUs, each kind in a function of its own.
 * Once a second it prints "known SECONDS FUNCTION=SUM ...". SUM is the microseconds of the
 * function's work since the program began, or the number of its calls that failed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../gpu/cuda_driver.h"
#include "../../gpu/standin.h"

#define PAUSE_MS 50

static CUcontext first, second; /* of the two GPUs; `first` is current */
static CUstream stream;
static CUfunction gemm, softmax;
static CUdeviceptr memory;
static CUgraphExec graph;

static void must(int error)
{
	if (error != CUDA_SUCCESS)
		abort();
}

static void launch(CUfunction f, uint64_t us)
{
	standin_set_work_ns(us * 1000);
	must(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

#define FUNCTION(name) __attribute__((noinline)) static uint64_t name(void)

FUNCTION(trains)
{
	launch(gemm, 3000);
	launch(softmax, 1000);
	return 4000;
}

FUNCTION(copies)
{
	static char host[4096];

	standin_set_work_ns(500000);
	must(cuMemcpyHtoDAsync_v2(memory, host, sizeof(host), stream));
	return 500;
}

FUNCTION(replays)
{
	must(cuGraphLaunch(graph, stream));
	return 1000;
}

FUNCTION(on_second_device)
{
	must(cuCtxPushCurrent_v2(second));
	standin_set_work_ns(700000);
	must(cuLaunchKernel(gemm, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	must(cuCtxPopCurrent_v2(NULL));
	return 700;
}

/* A kernel cannot have 0 blocks: the call fails, so it must not be counted. Returns one call. */
FUNCTION(fails)
{
	if (cuLaunchKernel(gemm, 0, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) == CUDA_SUCCESS)
		abort();
	return 1;
}

static struct row {
	const char *name;
	uint64_t (*function)(void);
	uint64_t sum;
} rows[] = {
	{"trains", trains, 0},	 {"copies", copies, 0},
	{"replays", replays, 0}, {"on_second_device", on_second_device, 0},
	{"fails", fails, 0},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static CUfunction function(CUmodule module, const char *name)
{
	CUfunction f;

	must(cuModuleGetFunction(&f, module, name));
	return f;
}

/* Ten kernels, which the stream captures. */
static void make_graph(void)
{
	CUgraph captured;

	must(cuStreamBeginCapture_v2(stream, 0));
	for (int i = 0; i < 10; i++)
		launch(softmax, 100);
	must(cuStreamEndCapture(stream, &captured));
	must(cuGraphInstantiateWithFlags(&graph, captured, 0));
}

static void begin(void)
{
	CUmodule module;

	must(cuInit(0));
	must(cuCtxCreate_v2(&second, 0, 1));
	must(cuCtxPopCurrent_v2(NULL));
	must(cuCtxCreate_v2(&first, 0, 0));
	must(cuStreamCreate(&stream, 0));
	must(cuMemAlloc_v2(&memory, 4096));
	must(cuModuleLoadData(&module, ""));
	gemm = function(module, "_Z4gemmIfLi128EEvPKT_S2_PS0_i");
	softmax = function(module, "_ZN2nn7softmaxIfEEvPT_i");
	make_graph();
}

static void print_known(void)
{
	static time_t last;
	time_t now = time(NULL);

	if (now == last)
		return;
	last = now;
	printf("known %jd", (intmax_t)now);
	for (size_t i = 0; i < N_ROWS; i++)
		printf(" %s=%" PRIu64, rows[i].name, rows[i].sum);
	puts("");
	fflush(stdout);
}

int main(void)
{
	begin();
	for (;;) {
		for (size_t i = 0; i < N_ROWS; i++)
			rows[i].sum += rows[i].function();
		print_known();
		nanosleep(&(struct timespec){0, PAUSE_MS * 1000000}, NULL);
	}
}
