/* SPDX-License-Identifier: Apache-2.0 */
/* Known answer in C++: threads that wait and some that allocate by operator new, as waits.c does; prints the same lines. */
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

#define FUNCTION(name) __attribute__((noinline)) static void name()

static std::mutex mutex;
static int pipe_fds[2];
static thread_local char *volatile escaped; /* what another thread has there is not to be freed */
static char *held[64];

FUNCTION(naps)
{
	std::this_thread::sleep_for(20ms);
}

FUNCTION(waits_for_lock)
{
	std::lock_guard<std::mutex> held_now(mutex);
}

FUNCTION(reads_pipe)
{
	char c;

	if (read(pipe_fds[0], &c, 1) != 1)
		std::terminate();
}

FUNCTION(allocates)
{
	for (int i = 0; i < 4; i++) {
		escaped = new char[65536];
		delete[] escaped;
	}
}

FUNCTION(leaks)
{
	escaped = new char[8192];
}

__attribute__((noinline)) static void holds(bool on)
{
	for (char *&p : held) {
		delete[] p;
		p = on ? new char[65536] : nullptr;
	}
}

static int64_t cpu_us()
{
	timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

FUNCTION(burns)
{
	for (int64_t end = cpu_us() + 10000; cpu_us() < end;)
		;
}

struct row {
	const char *name;
	void (*function)();
	std::chrono::milliseconds pause;
	int64_t bytes; /* 0: it waits */
	std::atomic<int64_t> sum{0};

	void run()
	{
		for (;;) {
			auto began = steady::now();

			function();
			sum += bytes ? bytes : (steady::now() - began) / 1us;
			if (pause > 0ms)
				std::this_thread::sleep_for(pause);
		}
	}
};

int main()
{
	static row rows[] = {
		{"naps", naps, 0ms, 0},
		{"waits_for_lock", waits_for_lock, 2ms, 0},
		{"reads_pipe", reads_pipe, 0ms, 0},
		{"allocates", allocates, 50ms, 4 * 65536},
		{"leaks", leaks, 50ms, 8192},
	};
	static std::atomic<int> held_bytes{0};

	setvbuf(stdout, nullptr, _IOLBF, 0);
	if (pipe(pipe_fds))
		return 1;
	for (row &r : rows)
		std::thread(&row::run, &r).detach();
	std::thread([] {
		for (;; std::this_thread::sleep_for(20ms)) {
			std::lock_guard<std::mutex> held_now(mutex);
			std::this_thread::sleep_for(20ms);
		}
	}).detach();
	std::thread([] {
		for (;; std::this_thread::sleep_for(25ms))
			if (write(pipe_fds[1], "x", 1) != 1)
				std::terminate();
	}).detach();
	std::thread([] {
		for (bool on = true;; on = !on) {
			holds(on);
			held_bytes = on ? 64 * 65536 : 0;
			std::this_thread::sleep_for(20s);
		}
	}).detach();
	for (int64_t n = 0;; n++) {
		burns();
		std::this_thread::sleep_for(90ms);
		if (n % 10)
			continue;
		printf("known %lld", (long long)time(nullptr));
		for (row &r : rows)
			printf(" %s=%lld", r.name, (long long)r.sum);
		printf(" burns=%lld holds=%d\n", (long long)(n + 1) * 10000, (int)held_bytes);
	}
}
