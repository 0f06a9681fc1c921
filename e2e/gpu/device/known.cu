// SPDX-License-Identifier: Apache-2.0

// known: work and memory of a real device, of which the program itself measures what podflame
// should see. `known time` and `known memory` read commands, a line each, from standard input, and
// answer each with a line of JSON. run.py calls it.
#include <cuda.h>
#include <cuda_runtime.h>
#include <poll.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#define OUTERMOST __attribute__((noinline))
#define MIB	  (1ULL << 20)

#define WORKS(call)                                                                         \
	do {                                                                                \
		int error_ = (int)(call);                                                   \
		if (error_) {                                                               \
			fprintf(stderr, "known.cu:%d: %s: %d\n", __LINE__, #call, error_);  \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

static double now_ms()
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// ---- time: functions that give work to the device, and how long it took ----

__device__ static void spin(unsigned us)
{
	uint64_t begin, now;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	while (now - begin < us * 1000ULL);
}

template <typename T> __global__ void first_kernel(T us)
{
	spin((unsigned)us);
}

__global__ static void second_kernel(unsigned us)
{
	spin(us);
}

__global__ static void node_kernel(unsigned us)
{
	spin(us);
}

__global__ static void tiny_kernel() {}

static cudaStream_t stream;
static cudaGraphExec_t graph;
static char *on_host, *on_device;
static const size_t COPIED = 64 * MIB, SET = 4096 * MIB;

static OUTERMOST void launch_first(cudaStream_t s)
{
	first_kernel<float><<<1, 1, 0, s>>>(1000);
}

static OUTERMOST void launch_second(cudaStream_t s)
{
	second_kernel<<<1, 1, 0, s>>>(3000);
}

static OUTERMOST void launch_copy(cudaStream_t s)
{
	WORKS(cudaMemcpyAsync(on_device, on_host, COPIED, cudaMemcpyHostToDevice, s));
}

static OUTERMOST void launch_set(cudaStream_t s)
{
	WORKS(cudaMemsetAsync(on_device, 0, SET, s));
}

static OUTERMOST void launch_graph(cudaStream_t s)
{
	WORKS(cudaGraphLaunch(graph, s));
}

static OUTERMOST void launch_in_thread(cudaStream_t s)
{
	second_kernel<<<1, 1, 0, s>>>(2000);
}

// Launches n times and measures each on its stream. Returns the sum in microseconds.
static double measure(void (*launch)(cudaStream_t), cudaStream_t s, int n)
{
	cudaEvent_t begin, end;
	double us = 0;

	WORKS(cudaEventCreate(&begin));
	WORKS(cudaEventCreate(&end));
	for (int i = 0; i < n; i++) {
		float ms;
		WORKS(cudaEventRecord(begin, s));
		launch(s);
		WORKS(cudaEventRecord(end, s));
		WORKS(cudaEventSynchronize(end));
		WORKS(cudaEventElapsedTime(&ms, begin, end));
		us += 1e3 * ms;
	}
	WORKS(cudaEventDestroy(begin));
	WORKS(cudaEventDestroy(end));
	return us;
}

static void begin_time()
{
	cudaGraph_t made;

	WORKS(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
	WORKS(cudaStreamCreate(&stream));
	WORKS(cudaMallocHost(&on_host, COPIED));
	WORKS(cudaMalloc(&on_device, SET));
	WORKS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < 8; i++)
		node_kernel<<<1, 1, 0, stream>>>(250);
	WORKS(cudaStreamEndCapture(stream, &made));
	WORKS(cudaGraphInstantiate(&graph, made, 0));
	WORKS(cudaGraphDestroy(made));
	measure(launch_graph, stream, 1);
}

static void work(int n)
{
	static const struct {
		const char *name;
		void (*launch)(cudaStream_t);
	} all[] = {{"launch_first", launch_first},
		   {"launch_second", launch_second},
		   {"launch_copy", launch_copy},
		   {"launch_set", launch_set},
		   {"launch_graph", launch_graph}};
	double of_thread;
	std::thread t([&] {
		cudaStream_t own;
		WORKS(cudaStreamCreate(&own));
		of_thread = measure(launch_in_thread, own, n);
		WORKS(cudaStreamDestroy(own));
	});

	printf("{");
	for (auto &m : all)
		printf("\"%s\": %.0f, ", m.name, measure(m.launch, stream, n));
	t.join();
	printf("\"launch_in_thread\": %.0f}\n", of_thread);
}

static double cpu_ms()
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static OUTERMOST void storm_one(unsigned us)
{
	first_kernel<unsigned><<<1, 1, 0, stream>>>(us);
}

static OUTERMOST void storm_three(unsigned us)
{
	for (int i = 0; i < 3; i++)
		first_kernel<unsigned><<<1, 1, 0, stream>>>(us);
}

// Launches as much as it can, and says how often.
static void storm(int ms)
{
	double begin = now_ms(), cpu = cpu_ms();
	long n = 0;

	while (now_ms() - begin < ms) {
		for (int i = 0; i < 100; i++, n += 4) {
			storm_one(2);
			storm_three(2);
		}
		WORKS(cudaStreamSynchronize(stream));
	}
	printf("{\"launches\": %ld, \"ms\": %.0f, \"cpu_ms\": %.0f}\n", n, now_ms() - begin,
	       cpu_ms() - cpu);
}

// Waits for kernels in the kernel, n times. Prints how long it waited.
static void block(int n)
{
	cudaEvent_t end;
	double waited = 0;

	WORKS(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
	for (int i = 0; i < n; i++) {
		second_kernel<<<1, 1, 0, stream>>>(20000);
		WORKS(cudaEventRecord(end, stream));
		double begin = now_ms();
		WORKS(cudaEventSynchronize(end));
		waited += now_ms() - begin;
	}
	WORKS(cudaEventDestroy(end));
	printf("{\"waited_us\": %.0f}\n", 1e3 * waited);
}

// Launches something now and then until the next command, because the library removes CUPTI at the
// end of a launch. Prints how long the longest call took.
static void idle()
{
	struct pollfd input = {0, POLLIN, 0};
	double longest = 0;

	while (poll(&input, 1, 10) == 0) {
		double begin = now_ms();
		tiny_kernel<<<1, 1, 0, stream>>>();
		longest = now_ms() - begin > longest ? now_ms() - begin : longest;
		WORKS(cudaStreamSynchronize(stream));
	}
	printf("{\"longest_call_ms\": %.2f}\n", longest);
}

// ---- memory: functions that allocate, and how much ----

static unsigned long long bytes[16];

static OUTERMOST void keep_malloc()
{
	void *p;
	for (int i = 0; i < 5; i++, bytes[0] += 100 * MIB)
		WORKS(cudaMalloc(&p, 100 * MIB));
}

static OUTERMOST void keep_pitch()
{
	void *p;
	size_t pitch;
	WORKS(cudaMallocPitch(&p, &pitch, 1000, 4096));
	bytes[1] += pitch * 4096;
}

static OUTERMOST void keep_async()
{
	void *p;
	for (int i = 0; i < 2; i++, bytes[2] += 64 * MIB)
		WORKS(cudaMallocAsync(&p, 64 * MIB, stream));
	WORKS(cudaStreamSynchronize(stream));
}

static OUTERMOST void keep_physical()
{
	CUmemAllocationProp prop = {};
	CUmemGenericAllocationHandle handle;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	WORKS(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
	for (int i = 0; i < 2; i++, bytes[3] += 32 * MIB) {
		WORKS(cuMemCreate(&handle, 32 * MIB, &prop, 0));
		WORKS(cuMemMap(at + i * 32 * MIB, 32 * MIB, 0, handle, 0));
		WORKS(cuMemRelease(handle)); // what is mapped lives on
	}
	WORKS(cuMemSetAccess(at, 64 * MIB, &access, 1));
	WORKS(cuMemUnmap(at, 32 * MIB)); // and ends here
}

static OUTERMOST void keep_array()
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaArray_t array;
	WORKS(cudaMallocArray(&array, &format, 1024, 1024));
	bytes[4] += 4 * MIB;
}

static OUTERMOST void keep_in_thread()
{
	void *p;
	WORKS(cudaMalloc(&p, 40 * MIB));
	bytes[5] += 40 * MIB;
}

static OUTERMOST void drop()
{
	void *p;
	for (int i = 0; i < 3; i++, bytes[6] += 50 * MIB) {
		WORKS(cudaMalloc(&p, 50 * MIB));
		WORKS(cudaFree(p));
	}
}

static OUTERMOST void drop_async()
{
	void *p;
	WORKS(cudaMallocAsync(&p, 30 * MIB, stream));
	WORKS(cudaFreeAsync(p, stream));
	WORKS(cudaStreamSynchronize(stream));
	bytes[7] += 30 * MIB;
}

static OUTERMOST void fails()
{
	void *p;
	if (!cudaMalloc(&p, 1ULL << 50))
		exit(1);
	cudaGetLastError();
}

static OUTERMOST void of_host()
{
	void *p;
	WORKS(cudaMallocHost(&p, 16 * MIB));
}

static void allocate()
{
	static const char *const names[] = {"keep_malloc", "keep_pitch",     "keep_async",
					    "keep_physical", "keep_array",   "keep_in_thread",
					    "drop",	   "drop_async"};

	WORKS(cudaStreamCreate(&stream));
	keep_malloc();
	keep_pitch();
	keep_async();
	keep_physical();
	keep_array();
	std::thread(keep_in_thread).join();
	drop();
	drop_async();
	fails();
	of_host();
	for (int i = 0; i < 8; i++)
		printf("%s\"%s\": %llu", i ? ", " : "{", names[i], bytes[i]);
	printf("}\n");
}

static OUTERMOST void keep_after_reset()
{
	void *p;
	WORKS(cudaMalloc(&p, 7 * MIB));
}

// Says how much the device has used before the reset and after it.
static void reset()
{
	size_t of_all, before, after;

	WORKS(cudaMemGetInfo(&before, &of_all));
	WORKS(cudaDeviceReset());
	WORKS(cudaMemGetInfo(&after, &of_all));
	keep_after_reset();
	printf("{\"used_before\": %zu, \"used_after\": %zu}\n", of_all - before, of_all - after);
}

int main(int argc, char **argv)
{
	char line[80], command[16];
	int n;

	if (argc == 2 && !strcmp(argv[1], "time"))
		begin_time();
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%15s %d", command, &n) != 2)
			return 2;
		if (!strcmp(command, "work"))
			work(n);
		else if (!strcmp(command, "storm"))
			storm(n);
		else if (!strcmp(command, "block"))
			block(n);
		else if (!strcmp(command, "idle"))
			idle();
		else if (!strcmp(command, "allocate"))
			allocate();
		else if (!strcmp(command, "reset"))
			reset();
		else
			return 2;
		fflush(stdout);
	}
	return 0;
}
